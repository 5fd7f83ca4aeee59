package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// packageName is that of the one package, which has all that a host takes.
const packageName = "kata-vfio"

// format is one of the forms of a package.
type format struct {
	packager      nfpm.Packager
	zshCompletion string // where its distributions have zsh look
	copyright     string // the file of the tree that says whose the package is
	files         func(source) ([]file, error)
}

func formats() map[string]format {
	return map[string]format{
		"deb": {
			packager: deb.Default, zshCompletion: "/usr/share/zsh/vendor-completions",
			copyright: "deploy/packages/copyright", files: debianFiles,
		},
		"rpm": {
			packager: rpm.DefaultRPM, zshCompletion: "/usr/share/zsh/site-functions",
			copyright: "LICENSE", files: func(source) ([]file, error) { return nil, nil },
		},
	}
}

// writePackages writes a package in each form for each processor.
func (r *request) writePackages(src source, programs []program) error {
	byArch := map[string][]program{}
	for _, p := range r.onHosts(programs) {
		byArch[p.arch] = append(byArch[p.arch], p)
	}
	for arch, programs := range byArch {
		for name, form := range formats() {
			if err := r.writePackage(name, form, src, arch, programs); err != nil {
				return fmt.Errorf("write the %s for %s: %w", name, arch, err)
			}
		}
	}
	return nil
}

// writePackage writes one package. The library takes files only, so what is not one yet becomes one for a while.
func (r *request) writePackage(name string, form format, src source, arch string, programs []program) error {
	stage, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	contents, err := r.contents(form, src, programs)
	if err != nil {
		return err
	}
	info := describePackage(src, arch)
	if info.Contents, err = place(contents, stage, src); err != nil {
		return err
	}
	info.Scripts.PreRemove = filepath.Join(r.tree, "deploy/packages/preremove.sh")
	info.Target = filepath.Join(r.output, form.packager.ConventionalFileName(nfpm.WithDefaults(info)))
	if err := nfpm.PrepareForPackager(info, name); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := form.packager.Package(info, &out); err != nil {
		return err
	}
	return renameio.WriteFile(info.Target, out.Bytes(), 0o644)
}

func describePackage(src source, arch string) *nfpm.Info {
	return nfpm.WithDefaults(&nfpm.Info{
		Name: packageName, Arch: arch, Platform: "linux", Version: src.version, Release: "1", MTime: src.time,
		Section: "admin", Priority: "optional", License: "Apache-2.0", Homepage: repository,
		Maintainer: maintainer,
		Description: "Gives PCI functions to Kata VMs, and audits how they are kept apart\n" +
			"The programs of kata-vfio for a node: binding PCI functions to VFIO by hand,\n" +
			"the audit, and the systemd units and configuration that the node needs. The\n" +
			"DRA driver itself comes with its Helm chart.",
		Overridables: nfpm.Overridables{RPM: nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Base", Summary: "Gives PCI functions to Kata VMs"}},
	})
}

// contents are a package's files. Those below /etc are the administrator's.
func (r *request) contents(form format, src source, programs []program) ([]file, error) {
	const doc, shared, units = "/usr/share/doc/kata-vfio", "/usr/share/kata-vfio", "/usr/lib/systemd/system"
	list, err := form.files(src)
	if err != nil {
		return nil, err
	}
	for i := range programs {
		own, err := programs[i].contents(form)
		if err != nil {
			return nil, err
		}
		list = append(list, own...)
		list = append(list, file{path: path.Join(doc, "THIRD-PARTY-LICENSES."+programs[i].name), content: programs[i].licenses})
	}
	for from, to := range map[string]string{
		form.copyright: doc + "/copyright", "README.md": doc + "/", "deploy/packages/node.yaml": "/etc/kata-vfio/",
		"runtimeclass/README.md": shared + "/", "runtimeclass/systemd": units + "/",
		"runtimeclass/containerd": shared + "/containerd/", "runtimeclass/crio": shared + "/crio/", "runtimeclass/kata": shared + "/kata/",
		"deploy/packages/kata-vfio-bootstrap-verify.service": units + "/", "deploy/packages/kata-vfio-bootstrap-verify.timer": units + "/",
	} {
		copied, err := copyTree(filepath.Join(r.tree, from), to)
		if err != nil {
			return nil, err
		}
		list = append(list, copied...)
	}
	return list, nil
}

// contents are a program and what comes with it.
func (p *program) contents(form format) ([]file, error) {
	manual, err := compress(p.manual.content)
	if err != nil {
		return nil, err
	}
	directory := map[string]string{
		"bash": "/usr/share/bash-completion/completions", "zsh": form.zshCompletion, "fish": "/usr/share/fish/vendor_completions.d",
	}
	list := []file{
		{path: "/usr/bin/" + p.name, content: p.content, mode: 0o755},
		{path: fmt.Sprintf("/usr/share/man/man%d/%s.gz", p.manual.section, p.manual.name()), content: manual},
	}
	for _, c := range p.completions {
		list = append(list, file{path: path.Join(directory[c.shell], c.name()), content: c.script})
	}
	return list, nil
}

// copyTree is a file or a directory's files, below a target that ends in a slash, else at it.
func copyTree(from, to string) (list []file, err error) {
	err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		target := to
		if strings.HasSuffix(to, "/") {
			target = path.Join(to, d.Name())
		}
		list = append(list, file{path: target, content: content})
		return err
	})
	return list, err
}

// place writes files to the stage and says where they go.
func place(list []file, stage string, src source) (files.Contents, error) {
	contents := files.Contents{
		{Destination: "/etc/kata-vfio", Type: files.TypeDir},
		{Destination: "/usr/share/kata-vfio", Type: files.TypeDir},
		{Destination: "/usr/share/doc/kata-vfio", Type: files.TypeDir},
	}
	for _, c := range contents {
		c.FileInfo = &files.ContentFileInfo{Mode: 0o755, MTime: src.time}
	}
	slices.SortFunc(list, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	for i, f := range list {
		source := filepath.Join(stage, fmt.Sprint(i))
		if err := os.WriteFile(source, f.content, 0o600); err != nil {
			return nil, err
		}
		c := &files.Content{Source: source, Destination: f.path, FileInfo: &files.ContentFileInfo{Mode: 0o644, MTime: src.time}}
		if f.mode != 0 {
			c.FileInfo.Mode = fs.FileMode(f.mode)
		}
		if strings.HasPrefix(f.path, "/etc/") {
			c.Type = files.TypeConfigNoReplace
		}
		contents = append(contents, c)
	}
	return contents, nil
}

func compress(content []byte) ([]byte, error) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zip.Write(content); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

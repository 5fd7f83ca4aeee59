package archive

import (
	"bytes"
	"debug/buildinfo"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// maxBinary is the largest program that is read for its version.
const maxBinary = 256 << 20

// Versions are the versions of the programs that run the node's VMs. They are read from files; no program is run.
type Versions struct {
	Tool   string `json:"tool"`
	Kernel string `json:"kernel,omitempty"`
	// OS is PRETTY_NAME of os-release.
	OS string `json:"os,omitempty"`
	// Kata is the content of Kata's own VERSION file.
	Kata string `json:"kata,omitempty"`
	// Programs are the programs that are written in Go, by path.
	Programs []Program `json:"programs"`
}

// Program is a program's build, according to its file.
type Program struct {
	Path    string `json:"path"`
	Module  string `json:"module"`
	Version string `json:"version"`
	// Revision is the commit of the build.
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
}

// programs returns the paths of the relevant programs.
func programs() []string {
	var all []string
	for _, dir := range []string{"usr/bin/", "usr/local/bin/", "opt/kata/bin/", "opt/kata-vfio/bin/", "usr/sbin/"} {
		for _, name := range []string{
			"containerd", "crio", "kubelet", "containerd-shim-kata-v2", "kata-runtime",
			"kata-vfio-plugin", "kata-vfio-audit", "kata-vfio-bootstrap", "kata-vfio-guestnet",
		} {
			all = append(all, dir+name)
		}
	}
	return all
}

// ReadVersions reads the versions from files of the node.
func ReadVersions(node *sysfs.FS, tool string) Versions {
	v := Versions{Tool: tool, Programs: []Program{}, Kernel: line(node, "proc/version"), Kata: line(node, "opt/kata/VERSION")}
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		for text := range strings.Lines(text(node, name)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(text), "PRETTY_NAME="); ok && v.OS == "" {
				v.OS = strings.Trim(value, `"`)
			}
		}
	}
	for _, name := range programs() {
		if p, ok := readProgram(node, name); ok {
			v.Programs = append(v.Programs, p)
		}
	}
	return v
}

// maxText is the largest of the small files that are read here.
const maxText = 64 << 10

func text(node *sysfs.FS, name string) string {
	data, err := node.ReadAtMost(name, maxText)
	if err != nil {
		return ""
	}
	return string(data)
}

func line(node *sysfs.FS, name string) string {
	first, _, _ := strings.Cut(text(node, name), "\n")
	return strings.TrimSpace(first)
}

// readProgram reads a program's build; false if the file does not exist or was not built by Go.
func readProgram(node *sysfs.FS, name string) (Program, bool) {
	info, err := node.Stat(name)
	if err != nil || info.Size() > maxBinary {
		return Program{}, false
	}
	data, err := node.ReadAtMost(name, maxBinary)
	if err != nil {
		return Program{}, false
	}
	built, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return Program{}, false
	}
	p := Program{Path: "/" + name, Module: built.Main.Path, Version: built.Main.Version, Go: built.GoVersion}
	for _, s := range built.Settings {
		if s.Key == "vcs.revision" {
			p.Revision = s.Value
		}
	}
	return p, true
}

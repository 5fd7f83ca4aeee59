package containers_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

// files are a node's, by path; one that begins with "-> " is a link.
type files map[string]string

// and returns the files with others over them; an empty one is not there.
func (f files) and(others files) files {
	all := maps.Clone(f)
	maps.Copy(all, others)
	maps.DeleteFunc(all, func(_, text string) bool { return text == "" })
	return all
}

const (
	opt    = "opt/kata/share/defaults/kata-containers/"
	main   = "etc/containerd/config.toml"
	dropIn = "etc/containerd/conf.d/kata-gpu.toml"
	// base is short for what Kata ships.
	base = `[hypervisor.qemu]
path = "/opt/kata/bin/qemu-system-x86_64"
cold_plug_vfio = "root-port"
default_memory = 8192
shared_fs = "virtio-fs"
virtio_fs_daemon = "/opt/kata/libexec/virtiofsd"
virtio_fs_extra_args = ["--thread-pool-size=1", "--announce-submounts"]
enable_annotations = ["enable_iommu", "kernel_params"]
[agent.kata]
[runtime]
pod_resource_api_sock = "/var/lib/kubelet/pod-resources/kubelet.sock"
`
)

// kata has Kata unpacked below /opt, both runtimes of it, and systemd.
func kata() files {
	return files{
		"opt/kata/bin/containerd-shim-kata-v2":                           "ELF",
		"opt/kata/runtime-rs/bin/containerd-shim-kata-v2":                "ELF",
		"opt/kata/libexec/virtiofsd":                                     "ELF",
		"opt/kata/VERSION":                                               "4.1.0\n",
		opt + "configuration-qemu-nvidia-gpu.toml":                       base,
		opt + "configuration-qemu.toml":                                  base,
		opt + "runtime-rs/configuration-qemu-nvidia-gpu-runtime-rs.toml": strings.Replace(base, `"virtio-fs"`, `"none"`, 1),
		opt + "runtime-rs/configuration-qemu-runtime-rs.toml":            strings.Replace(base, `"--announce-submounts"`, `"-o", "announce_submounts"`, 1),
		"usr/lib/systemd/system/containerd.service":                      "[Service]\nExecStartPre=-/sbin/modprobe overlay\nExecStart=/usr/bin/containerd\n",
		"usr/bin/containerd":                                             "ELF",
	}
}

// containerdPackage is dpkg's entry for a version of containerd; none for an empty one.
func containerdPackage(version string) files {
	if version == "" {
		return nil
	}
	return files{"var/lib/dpkg/status": "Package: adduser\nStatus: install ok installed\nVersion: 3.1\n\n" +
		"Package: containerd\nStatus: install ok installed\nPriority: optional\nVersion: " + version + "\n"}
}

func wanted(tb testing.TB, fsys *sysfs.FS, o blueprint.Containers) state.Wanted {
	tb.Helper()
	w, err := containers.Wanted(fsys, o)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// open makes the node and returns its requirements.
func open(tb testing.TB, of files, o blueprint.Containers) (*sysfs.FS, state.Wanted) {
	tb.Helper()
	fsys := tree.Open(tb, of)
	return fsys, wanted(tb, fsys, o)
}

// paths returns the files that are wanted.
func paths(w state.Wanted) []string {
	var all []string
	for _, f := range w.Files {
		all = append(all, f.Path)
	}
	return all
}

// changes returns the files that are not yet as they should be.
func changes(tb testing.TB, fsys *sysfs.FS, w state.Wanted) []string {
	tb.Helper()
	var paths []string
	for _, f := range w.Files {
		if strings.HasPrefix(f.Path, "/") || f.Part == "" || f.Why == "" {
			tb.Errorf("the file %+v is not one", f)
		}
		path := filepath.Join(fsys.Path(), f.Path)
		if f.Target != "" {
			if target, err := os.Readlink(path); err != nil || target != f.Target {
				paths = append(paths, f.Path)
			}
			continue
		}
		if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, f.Content) {
			paths = append(paths, f.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

// apply lays the files down.
func apply(tb testing.TB, fsys *sysfs.FS, w state.Wanted) {
	tb.Helper()
	for _, f := range w.Files {
		path := filepath.Join(fsys.Path(), f.Path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case f.Target != "":
			_ = os.Remove(path)
			err = os.Symlink(f.Target, path)
		default:
			err = os.WriteFile(path, f.Content, f.Mode)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// fatal returns the problems that forbid changes.
func fatal(w state.Wanted) []state.Problem {
	return slices.DeleteFunc(slices.Clone(w.Problems), func(p state.Problem) bool { return !p.Fatal })
}

// checkRefused fails unless nothing but one problem is there, about the path and
// with the words, and none of the part's files is wanted.
func checkRefused(tb testing.TB, w state.Wanted, part, path string, words ...string) {
	tb.Helper()
	problems := fatal(w)
	if len(problems) != 1 || problems[0].Part != part || problems[0].Path != path || problems[0].Fix == "" {
		tb.Fatalf("the problems are %+v, want one of %s at %s", problems, part, path)
	}
	for _, word := range words {
		if !strings.Contains(problems[0].Text+problems[0].Fix, word) {
			tb.Errorf("the problem is %+v; it lacks %q", problems[0], word)
		}
	}
	for _, f := range w.Files {
		if f.Part == part {
			tb.Errorf("%s is wanted all the same", f.Path)
		}
	}
}

// seen has the audit's facts about the node's runtimes.
func seen(fsys *sysfs.FS) *runtimes.Runtimes {
	return runtimes.Of(facts.New(fsys, &device.Snapshot{}))
}

package dropins_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden has what bootstrap makes of configurations of containerd; its own tests hold
// the files to what it wants.
const golden = "../../../../pkg/bootstrap/containers/testdata/containerd"

// What bootstrap wants of a node, containerd itself takes for what it is meant to be:
// our handlers, and all else as it was.
func TestContainerdReadsWhatBootstrapWrites(t *testing.T) {
	for name, rust := range map[string]bool{
		"version-2": false, "version-2-as-new": false, "version-3": false, "version-4": true, "no-file": false, "no-file-unknown": false,
		"version-2-nic": false, "version-3-nic": true,
	} {
		t.Run(name, func(t *testing.T) {
			main, dropIn := goldenFile(t, name+".toml"), goldenFile(t, name+".drop-in.toml")
			with, without := loadNode(t, main, dropIn), loadNode(t, main, "")
			want := handler{
				Type: "io.containerd.kata-gpu.v2", Path: "/opt/kata/bin/containerd-shim-kata-v2", Sandboxer: "podsandbox",
				PrivilegedWithoutHostDevices: true, PodAnnotations: []string{}, ContainerAnnotations: []string{},
				Options: options("/opt/kata/share/defaults/kata-containers/kata-gpu/configuration.toml"),
			}
			if rust {
				want.Path = "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2"
				want.Options = options("/opt/kata/share/defaults/kata-containers/runtime-rs/kata-gpu/configuration.toml")
			}
			if diff := cmp.Diff(want, with.CRI.Containerd.Runtimes["kata-gpu"]); diff != "" {
				t.Errorf("the handler differs (-want +got):\n%s", diff)
			}
			if strings.HasSuffix(name, "-nic") {
				want.Type = "io.containerd.kata-vfio.v2"
				want.Options = options(strings.Replace(want.Options["ConfigPath"].(string), "kata-gpu", "kata-vfio", 1))
				if diff := cmp.Diff(want, with.CRI.Containerd.Runtimes["kata-vfio"]); diff != "" {
					t.Errorf("the handler for NICs differs (-want +got):\n%s", diff)
				}
				delete(with.CRI.Containerd.Runtimes, "kata-vfio")
			}
			checkNRI(t, with)
			checkTimeouts(t, with, map[string]string{shimCleanup: "60s"})
			delete(with.CRI.Containerd.Runtimes, "kata-gpu")
			if diff := cmp.Diff(without.CRI, with.CRI); diff != "" {
				t.Errorf("something else differs (-without +with the drop-in):\n%s", diff)
			}
			t.Logf("%-17s handlers beside ours: %d, CDI directories: %d", name, len(with.CRI.Containerd.Runtimes), len(with.CRI.CDISpecDirs))
			if _, ok := with.CRI.Containerd.Runtimes["runc"]; !ok || !slices.Contains(with.CRI.CDISpecDirs, "/var/run/cdi") {
				t.Errorf("CRI has %+v", with.CRI)
			}
		})
	}
}

func goldenFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// loadNode has containerd read a node's files, moved from /etc/containerd.
func loadNode(t *testing.T, main, dropIn string) outcome {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "site.toml"), "version = 3\n")
	if dropIn != "" {
		write(t, filepath.Join(dir, "conf.d", "kata-gpu.toml"), dropIn)
	}
	write(t, filepath.Join(dir, "config.toml"), strings.ReplaceAll(main, "/etc/containerd", dir))
	return loadFile(t, filepath.Join(dir, "config.toml"))
}

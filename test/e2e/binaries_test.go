//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
)

// What a node needs, in the versions that are pinned.
func TestNodeBinaries(t *testing.T) {
	set, err := binaries.Ensure(t.Context(), binaries.Config{
		Modules:  []binaries.Module{binaries.Kube, binaries.Containerd, binaries.Runc},
		Progress: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"kubelet":                 "Kubernetes " + kubernetesVersion(),
		"containerd":              "v2 " + containerdVersion(),
		"containerd-shim-runc-v2": containerdVersion(),
		"ctr":                     containerdVersion(),
		"runc":                    "runc version 1.5.2",
	} {
		flag := "--version"
		if command == "containerd-shim-runc-v2" {
			flag = "-v"
		}
		out, err := exec.CommandContext(t.Context(), set.Path(command), flag).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s %s says %q, %v; want %s", command, flag, out, err, want)
		}
	}
	// Without it runc refuses each pod's sandbox.
	if out, err := exec.CommandContext(t.Context(), set.Path("runc"), "features").Output(); err != nil ||
		!strings.Contains(string(out), "SCMP_ACT_ERRNO") {
		t.Errorf("runc has no seccomp: %v", err)
	}
	// containerd looks for it on its PATH, which need name one directory.
	if filepath.Dir(set.Path("containerd")) != filepath.Dir(set.Path("containerd-shim-runc-v2")) {
		t.Error("the shim is not beside containerd")
	}
}

//go:build e2e

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// Several control planes may run side by side, and each ends without a trace.
func TestStopLeavesNothing(t *testing.T) {
	first := cluster(t)
	second, err := controlplane.Start(t.Context(), controlplane.Config{
		FeatureGates:  map[string]bool{"DRAResourcePoolStatus": true},
		RuntimeConfig: map[string]bool{"resource.k8s.io/v1alpha3": true},
		Progress:      os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Stop)
	const alpha = "resource.k8s.io/v1alpha3"
	if _, err := client(t, second, controlplane.Admin()).Discovery().ServerResourcesForGroupVersion(alpha); err != nil {
		t.Errorf("an API that was turned on is not served: %v", err)
	}
	if n := len(processesOf(t, second.Dir())); n != 4 {
		t.Errorf("%d processes name the directory, want the 4 components", n)
	}
	second.Stop()
	if left := processesOf(t, second.Dir()); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
	if _, err := os.Stat(second.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	if err := first.Lost(); err != nil {
		t.Errorf("the other control plane is lost, too: %v", err)
	}
}

// processesOf are the command lines that have a text in them.
func processesOf(t *testing.T, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file) // it may have ended meanwhile
		if err == nil && strings.Contains(string(line), text) {
			found = append(found, string(line))
		}
	}
	return found
}

func TestStartThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	_, err := controlplane.Start(t.Context(), controlplane.Config{FeatureGates: map[string]bool{"NoSuchGate": true}})
	for _, want := range []string{"kube-apiserver", "exit status 1", "unrecognized feature gate: NoSuchGate"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if left := processesOf(t, dir); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlanRefusesWhatRunRefusesForTheAudit: the checks that `run` makes count for the
// plan too, and --audit-taint off shows what `prepare` would do.
func TestPlanRefusesWhatRunRefusesForTheAudit(t *testing.T) {
	root := newRoot(t)
	mode := filepath.Join(root, "sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
	if err := os.MkdirAll(filepath.Dir(mode), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mode, []byte("Y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"plan", "--root", root, "-f", "testdata/one-claim.yaml"}
	if got := invoke(t, args...); got.code == 0 || !strings.Contains(got.stderr, "fails IOM-003 of the node's audit") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, append(args, "--audit-taint", "off")...); got.code != 0 {
		t.Errorf("without the checks: %+v", got)
	}
	if got := invoke(t, append(args, "--audit-taint", "grave")...); got.code != exitUsage {
		t.Errorf("of a severity that is none: %+v", got)
	}
}

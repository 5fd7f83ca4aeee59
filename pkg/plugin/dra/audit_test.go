package dra_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// A check that begins to fail is published, for allocated devices too, and taken
// back when it passes.
func TestFailedChecksArePublishedAndTakenBack(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	bad := n.Kernel.AddGPU(0x3b)
	n.Kernel.AddGPU(0x3c)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	good := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {}}
	for _, step := range []struct {
		failing []rule.Failure
		want    map[string][]string
	}{
		{nil, good},
		{[]rule.Failure{{ID: "ACS-017", Severity: rule.High}}, map[string][]string{"gpu-0000-3b-00-0": {"audit"}, "gpu-0000-3c-00-0": {}}},
		{nil, good},
	} {
		n.Facts.Fails = map[pci.Address][]rule.Failure{bad: step.failing}
		n.Publish(r)
		if diff := cmp.Diff(step.want, r.Devices()); diff != "" {
			t.Errorf("with %v (-want +got):\n%s", step.failing, diff)
		}
	}
	if len(r.Published) != 3 {
		t.Errorf("published %d times, want 3", len(r.Published))
	}
}

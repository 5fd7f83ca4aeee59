package dra_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A check that begins to fail is published, for allocated devices too, and taken
// back when it passes.
func TestFailedChecksArePublishedAndTakenBack(t *testing.T) {
	n, r := newNode(t), &recorder{}
	bad := n.k.AddGPU(0x3b)
	n.k.AddGPU(0x3c)
	n.prepared("uid-1", "gpu-0000-3b-00-0")
	var failing []finding.Failure
	n.publisher.Failing = func(a pci.Address) []finding.Failure {
		if a == bad {
			return failing
		}
		return nil
	}
	good := map[string][]string{"gpu-0000-3b-00-0": {}, "gpu-0000-3c-00-0": {}}
	for _, step := range []struct {
		failing []finding.Failure
		want    map[string][]string
	}{
		{nil, good},
		{[]finding.Failure{{ID: "ACS-017", Severity: isolation.High}}, map[string][]string{"gpu-0000-3b-00-0": {"audit"}, "gpu-0000-3c-00-0": {}}},
		{nil, good},
	} {
		failing = step.failing
		n.publish(r)
		if diff := cmp.Diff(step.want, r.devices()); diff != "" {
			t.Errorf("with %v (-want +got):\n%s", step.failing, diff)
		}
	}
	if len(r.published) != 3 {
		t.Errorf("published %d times, want 3", len(r.published))
	}
}

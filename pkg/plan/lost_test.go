package plan_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestLostClaimKeepsOthersAway: as long as its record has the device, and from devices that would take it along.
func TestLostClaimKeepsOthersAway(t *testing.T) {
	s := fixture()
	for name, tt := range map[string]struct {
		owners map[pci.Address]plan.Owner
		want   bool
	}{
		"its record has it":          {map[pci.Address]plan.Owner{audio: {Claim: plan.Ref{UID: "uid-1"}}}, true},
		"its record has ended":       {nil, false},
		"bound by policy since then": {map[pci.Address]plan.Owner{audio: {Bound: true}}, false},
	} {
		n := node(s)
		n.Owners, n.Attempted = tt.owners, map[pci.Address]rule.Code{audio: rule.HeldByLostClaim}
		for a, want := range map[pci.Address]bool{audioGPU: tt.want, gpuAddr: false} {
			f, _ := s.Function(a)
			as := plan.NewAssessor(n).Assess(f)
			if got := slices.ContainsFunc(as.Faults(), func(r rule.Verdict) bool { return r.Code == rule.HeldByLostClaim }); got != want {
				t.Errorf("%s: %s is refused: %v, want %v", name, a, got, want)
			}
		}
		if len(n.Attempted) != 1 {
			t.Errorf("%s: the caller's node has %d attempts, want the 1 that it had", name, len(n.Attempted))
		}
	}
}

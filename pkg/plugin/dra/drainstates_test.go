package dra_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestUnfinishedDrainCounts: a function of two drains is in use until both have ended, whatever their order.
func TestUnfinishedDrainCounts(t *testing.T) {
	shared, other := pci.Address{Bus: 0x3b}, pci.Address{Bus: 0x3c}
	done := maintain.Draining{Functions: []maintain.DrainedFunction{{Address: shared}}}
	inUse := maintain.Draining{Functions: []maintain.DrainedFunction{{Address: shared}, {Address: other}}, Holders: []plan.Ref{{Name: "train"}}}
	want := map[pci.Address]rule.Code{shared: rule.Draining, other: rule.Draining}
	for _, drains := range [][]maintain.Draining{{done, inUse}, {inUse, done}} {
		if diff := cmp.Diff(want, dra.DrainStates(drains)); diff != "" {
			t.Errorf("states (-want +got):\n%s", diff)
		}
	}
	if got := dra.DrainStates([]maintain.Draining{done}); got[shared] != rule.Drained {
		t.Errorf("one drain that is done: got %q, want %q", got[shared], rule.Drained)
	}
}

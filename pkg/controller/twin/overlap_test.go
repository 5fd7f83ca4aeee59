package twin_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestOverlap: only a GPU that was reserved for one claim, and of which another has a published twin, is allocated twice.
func TestOverlap(t *testing.T) {
	reserved := vm(answered(v1alpha1.ConditionTwinReserved, string(rule.TwinFree)))
	former := reserved
	former.AllocatedAt = now + 1
	holder := func(g *twin.GPU) { g.TwinHolders = []twin.Claim{container()} }
	for name, c := range map[string]struct {
		gpu  *twin.GPU
		want bool
	}{
		"nobody":                         {free(), false},
		"reserved":                       {free(ours(reserved)), false},
		"a container":                    {free(taken(container()), holder), false},
		"reserved, and a container":      {free(ours(reserved), taken(container()), holder), true},
		"not reserved yet":               {free(ours(vm()), taken(container()), holder), false},
		"refused":                        {free(ours(vm(answered(v1alpha1.ConditionTwinInUse, string(rule.TwinAllocated)))), taken(container()), holder), false},
		"reserved for an earlier one":    {free(ours(former), taken(container()), holder), false},
		"a device that is not published": {free(ours(reserved), taken(container())), false},
	} {
		one, other, overlaps := c.gpu.Overlap()
		if overlaps != c.want || overlaps && (one.UID != "vm" || other.UID != "container") {
			t.Errorf("%s: %v, %v, %v, want %v", name, one, other, overlaps, c.want)
		}
	}
}

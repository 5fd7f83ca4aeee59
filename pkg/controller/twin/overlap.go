package twin

import "github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"

// Overlap returns a claim that the GPU was reserved for, and a claim that has a twin nevertheless. Both can exist only if a
// scheduler allocated the twin against its rule: kube-scheduler obeys rules, and a claim is reserved once no other claim can
// get a twin. Claims with a device that isn't published do not count, because it may be another GPU.
func (g *GPU) Overlap() (ours, theirs *Claim, overlaps bool) {
	if len(g.TwinHolders) == 0 {
		return nil, nil, false
	}
	for i := range g.OurClaims {
		if c := &g.OurClaims[i]; c.reserved() {
			return c, &g.TwinHolders[0], true
		}
	}
	return nil, nil, false
}

// reserved reports whether the GPU was reserved for this allocation of the claim.
func (c *Claim) reserved() bool {
	for _, cond := range c.Conditions {
		if cond.Type == v1alpha1.ConditionTwinReserved && cond.True && cond.At >= c.AllocatedAt {
			return true
		}
	}
	return false
}

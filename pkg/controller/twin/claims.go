package twin

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// addClaim adds a claim to the GPUs that it has to itself. A request with adminAccess has no device to itself: otherwise a
// monitor, which has access to all GPUs of the other driver, would keep each GPU from VMs forever. Prepare finds what the
// monitor's containers have open: it refuses the device and names the process.
func (b *builder) addClaim(c *cluster.Claim) {
	for _, id := range c.Owned() {
		switch {
		case id.IsOurs():
			b.addOurClaim(c, id)
		case slices.Contains(b.view.Drivers, id.Driver):
			b.addTwinClaim(c, id)
		}
	}
}

// addOurClaim adds a claim of our device. Only devices of the pool of shared devices have binding conditions, which wait for an
// answer.
func (b *builder) addOurClaim(listed *cluster.Claim, id cluster.ID) {
	at, ok := ourPlace(id)
	g := b.gpus[at]
	if !ok || g == nil {
		return
	}
	c := newClaim(listed)
	c.Conditions = conditions(listed, id)
	// A device of another pool has no binding condition, so its claim counts as answered from its allocation on.
	if _, shared := device.NodeOfSharedPool(id.Pool); !shared {
		c.Conditions = []Condition{{Type: v1alpha1.ConditionTwinReserved, True: true, At: c.AllocatedAt}}
	}
	g.OurClaims = appendOnce(g.OurClaims, &c)
}

// addTwinClaim adds a claim of a twin. A device that is not published may be the twin of any GPU of its node.
func (b *builder) addTwinClaim(listed *cluster.Claim, id cluster.ID) {
	c := newClaim(listed)
	if d := b.theirs[id]; d != nil {
		at, ok := located(d) // one that is no PCI function is not a twin
		if g := b.gpus[at]; ok && g != nil && g.SharedWith == id.Driver {
			g.TwinClaims, g.TwinHolders = appendOnce(g.TwinClaims, &c), appendOnce(g.TwinHolders, &c)
		}
		return
	}
	somewhere := unplacedAt{node: listed.Node, driver: id.Driver}
	b.unplaced[somewhere] = append(b.unplaced[somewhere], c)
}

// unplacedAt says where a claim may have a device that is not published: on a node, or on any node if node is "". driver is the
// device's DRA driver.
type unplacedAt struct{ node, driver string }

// addUnplaced adds claims whose GPU is not known, each to all GPUs that it may have. A cluster may have many such claims without
// a node, so GPUs share one list.
func (b *builder) addUnplaced() {
	for where, claims := range b.unplaced {
		slices.SortFunc(claims, compareUIDs)
		b.unplaced[where] = slices.CompactFunc(claims, func(x, y Claim) bool { return x.UID == y.UID })
	}
	for place, g := range b.gpus {
		for _, node := range []string{place.Node, ""} {
			g.TwinClaims = union(g.TwinClaims, b.unplaced[unplacedAt{node: node, driver: g.SharedWith}])
		}
	}
}

func compareUIDs(a, b Claim) int { return cmp.Compare(a.UID, b.UID) }

// union returns the claims of two lists that are sorted by UID. The result may be one of the lists.
func union(a, b []Claim) []Claim {
	switch {
	case len(a) == 0:
		// GPUs share the list: an append must copy it.
		return slices.Clip(b)
	case len(b) == 0:
		return a
	}
	all := slices.SortedFunc(slices.Values(slices.Concat(a, b)), compareUIDs)
	return slices.CompactFunc(all, func(x, y Claim) bool { return x.UID == y.UID })
}

// appendOnce appends a claim unless it is there. A claim may have several devices of one GPU.
func appendOnce(claims []Claim, c *Claim) []Claim {
	i, known := slices.BinarySearchFunc(claims, c, func(a Claim, b *Claim) int { return cmp.Compare(a.UID, b.UID) })
	if known {
		return claims
	}
	return slices.Insert(claims, i, *c)
}

func newClaim(listed *cluster.Claim) Claim {
	o := listed.Object
	return Claim{
		UID: string(o.UID), Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion,
		AllocatedAt: millis(o.Status.Allocation.AllocationTimestamp),
	}
}

// conditions returns the conditions of a claim's device that the controller sets.
func conditions(listed *cluster.Claim, id cluster.ID) []Condition {
	var all []Condition
	for _, s := range listed.Statuses {
		if s.ID != id {
			continue
		}
		for i := range s.Object.Conditions {
			if c := &s.Object.Conditions[i]; c.Type == v1alpha1.ConditionTwinReserved || c.Type == v1alpha1.ConditionTwinInUse {
				all = append(all, Condition{Type: c.Type, True: c.Status == metav1.ConditionTrue, Reason: c.Reason, At: millis(&c.LastTransitionTime)})
			}
		}
	}
	return all
}

// millis returns a time of the API server, 0 for none.
func millis(t *metav1.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMilli())
}

// Holds reports whether a device of a claim is our device of the GPU.
func (g *GPU) Holds(id cluster.ID) bool {
	at, ok := ourPlace(id)
	return ok && id.IsOurs() && at.String() == g.PCI
}

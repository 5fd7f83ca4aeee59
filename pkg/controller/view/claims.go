package view

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// claim adds a claim to the GPUs that it has.
func (b *builder) claim(claim *resourceapi.ResourceClaim) {
	for _, d := range owned(claim) {
		switch {
		case d.Driver == v1alpha1.DriverName:
			b.ourClaim(claim, d)
		case slices.Contains(b.cluster.Drivers, d.Driver):
			b.twinClaim(claim, d)
		}
	}
}

// ourClaim adds a claim of our device. Only a device of the pool of shared ones has conditions that wait for an answer.
func (b *builder) ourClaim(claim *resourceapi.ResourceClaim, d *resourceapi.DeviceRequestAllocationResult) {
	at, ok := ourPlace(d.Pool, d.Device)
	g := b.gpus[at]
	if !ok || g == nil {
		return
	}
	c := claimOf(claim)
	c.Conditions = conditionsOf(claim, d)
	if _, shared := device.NodeOfSharedPool(d.Pool); !shared {
		c.Conditions = []twin.Condition{{Type: v1alpha1.ConditionTwinReserved, True: true, At: c.AllocatedAt}}
	}
	g.OurClaims = appendOnce(g.OurClaims, &c)
}

// twinClaim adds a claim of a twin. A device that is not published may be the twin of any GPU of its node.
func (b *builder) twinClaim(claim *resourceapi.ResourceClaim, d *resourceapi.DeviceRequestAllocationResult) {
	c := claimOf(claim)
	p, ok := b.theirs[twin.Device{Driver: d.Driver, Pool: d.Pool, Name: d.Device}]
	if ok && p.located {
		if g := b.gpus[p.at]; g != nil && g.SharedWith == d.Driver {
			g.TwinClaims = appendOnce(g.TwinClaims, &c)
		}
		return
	}
	if ok {
		return // published, and no PCI function: not a twin
	}
	for _, g := range b.on(nodeOf(claim)) {
		if g.SharedWith == d.Driver {
			g.TwinClaims = appendOnce(g.TwinClaims, &c)
		}
	}
}

// appendOnce appends a claim unless it is there. A claim may have several devices of one GPU.
func appendOnce(claims []twin.Claim, c *twin.Claim) []twin.Claim {
	i, known := slices.BinarySearchFunc(claims, c, func(a twin.Claim, b *twin.Claim) int { return cmp.Compare(a.UID, b.UID) })
	if known {
		return claims
	}
	return slices.Insert(claims, i, *c)
}

func claimOf(claim *resourceapi.ResourceClaim) twin.Claim {
	return twin.Claim{
		UID: string(claim.UID), Namespace: claim.Namespace, Name: claim.Name, ResourceVersion: claim.ResourceVersion,
		AllocatedAt: millis(claim.Status.Allocation.AllocationTimestamp),
	}
}

// conditionsOf returns the conditions of a claim's device that the controller sets.
func conditionsOf(claim *resourceapi.ResourceClaim, d *resourceapi.DeviceRequestAllocationResult) []twin.Condition {
	var all []twin.Condition
	for i := range claim.Status.Devices {
		s := &claim.Status.Devices[i]
		if s.Driver != d.Driver || s.Pool != d.Pool || s.Device != d.Device {
			continue
		}
		for j := range s.Conditions {
			if c := &s.Conditions[j]; c.Type == v1alpha1.ConditionTwinReserved || c.Type == v1alpha1.ConditionTwinInUse {
				all = append(all, twin.Condition{Type: c.Type, True: c.Status == metav1.ConditionTrue, Reason: c.Reason, At: millis(&c.LastTransitionTime)})
			}
		}
	}
	return all
}

// millis returns a time of the API server, 0 for none.
func millis(t *metav1.Time) twin.Millis {
	if t.IsZero() {
		return 0
	}
	return twin.Millis(t.UnixMilli())
}

// Holds reports whether a device of a claim is our device of the GPU.
func Holds(g *twin.GPU, d *resourceapi.DeviceRequestAllocationResult) bool {
	at, ok := ourPlace(d.Pool, d.Device)
	return ok && d.Driver == v1alpha1.DriverName && at.String() == g.PCI
}

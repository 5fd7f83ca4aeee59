package stage

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// View is what the API server has of devices that wait for their stage, and of stages. The objects are read only.
type View struct {
	Sanitizers *v1alpha1.Sanitizers
	// Cluster has at least the slices of each node with a device that waits or has a stage, the claims that have devices of
	// these nodes, and the pods and claims of the stages' namespace. See [SliceScopes] and [ClaimScopes].
	Cluster *cluster.Cluster
	// Fresh has the nodes whose slices were listed, and do not come from a cache. If it has any, the pods and claims of stages
	// were listed, too, before the slices: what a slice says of a device was then written after its stage ended.
	Fresh map[string]bool
}

// Waiting is a device that waits for its sanitizing stage.
type Waiting struct {
	*cluster.Device
	// Profile is the name of the profile, which may not exist.
	Profile string
}

// poolKey names a pool. A slice in another node's pool is not part of it.
type poolKey struct{ node, name string }

// pools returns the complete pools. It leaves out a pool that is being written, because its devices may be missing.
func (v *View) pools() map[poolKey]*cluster.Pool {
	all := map[poolKey]*cluster.Pool{}
	for _, p := range v.Cluster.Pools() {
		if !p.Unfinished() {
			all[poolKey{p.Node, p.Name}] = p
		}
	}
	return all
}

// waiting returns the devices of the pools that wait for a stage and have no taint that stages do not tolerate, in the order of
// their IDs.
func waiting(pools map[poolKey]*cluster.Pool) []Waiting {
	var all []Waiting
	for _, p := range pools {
		for _, d := range p.Devices {
			if profile, ok := waitsOnly(d); ok {
				all = append(all, Waiting{d, profile})
			}
		}
	}
	slices.SortFunc(all, func(a, b Waiting) int { return a.ID.Compare(b.ID) })
	return all
}

// waitsOnly returns the profile of a device that waits for its stage, and false if another taint keeps stages from it. The
// taint of an exclusive domain does not: it keeps only tenants from the device.
func waitsOnly(d *cluster.Device) (string, bool) {
	profile, waits := "", false
	for _, t := range d.Taints {
		switch {
		case t.Key == v1alpha1.TaintSanitizing:
			profile, waits = t.Value, true
		// The effect None keeps no pod away: the taint only informs.
		case t.Key != v1alpha1.TaintTenant && t.Effect != resourceapi.DeviceTaintEffectNone:
			return "", false
		}
	}
	return profile, waits
}

func hasTaint(d *cluster.Device, key string) bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == key })
}

// published returns the newest state of a device, and nil while its pool is being written, or if it is not published.
func (d *decider) published(id cluster.ID) *cluster.Device {
	newest := d.view.Cluster.Device(id)
	if newest == nil {
		return nil
	}
	if p := d.pools[poolKey{newest.Node, id.Pool}]; p == nil || !slices.Contains(p.Devices, newest) {
		return nil
	}
	return newest
}

// isDecided reports whether the slice shows that the plugin has decided on the stage's result: the device is sanitized or in
// quarantine. The slice does not show a decision that the device needs another stage: its taint stays as it is.
func isDecided(d *cluster.Device) bool {
	return !hasTaint(d, v1alpha1.TaintSanitizing) || hasTaint(d, publish.TaintQuarantined)
}

// occupants says which claims keep devices from stages.
type occupants struct {
	cluster  *cluster.Cluster
	pools    map[poolKey]*cluster.Pool
	withheld map[*cluster.Pool]map[*cluster.Device][]string
}

// isFree reports whether no claim other than own has the device, one of its functions, or a resource that the device shares
// with others, such as a PF with its VFs.
func (o *occupants) isFree(d *cluster.Device, own *cluster.Claim) bool {
	if holder := o.cluster.Holder(d.ID); holder != nil {
		return own != nil && holder.Object.UID == own.Object.UID
	}
	for _, place := range d.Places {
		for _, other := range o.cluster.At(place) {
			if other.IsOurs() && o.cluster.Holder(other.ID) != nil {
				return false
			}
		}
	}
	return len(o.takers(d)) == 0
}

// takers returns the claimed devices that leave too little of a counter for d.
func (o *occupants) takers(d *cluster.Device) []string {
	p := o.pools[poolKey{d.Node, d.ID.Pool}]
	if p == nil {
		return nil
	}
	if o.withheld[p] == nil {
		o.withheld[p] = o.cluster.Withheld(p)
	}
	return o.withheld[p][d]
}

// inTurn orders devices by their turn, and then by their ID.
func inTurn(all []Waiting, turn func(cluster.ID) Millis) []Waiting {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Waiting) int { return cmp.Or(cmp.Compare(turn(a.ID), turn(b.ID)), a.ID.Compare(b.ID)) })
	return all
}

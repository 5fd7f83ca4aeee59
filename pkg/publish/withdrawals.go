package publish

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Listed is a device in the node's slices, as the API server or the latest pools have them.
type Listed struct {
	// Consumes are the shared counters that it consumes.
	Consumes []resourceapi.DeviceCounterConsumption
	// Withdrawn is set if it has [TaintWithdrawn].
	Withdrawn bool
	// Written changes whenever the device's slice is written. Empty in the latest pools, which have no slice yet.
	Written string
}

// ListedIn returns the devices of pools.
func ListedIn(pools map[string]Pool) map[Allocated]Listed {
	all := map[Allocated]Listed{}
	for name, pool := range pools {
		for i := range pool.Slices {
			AddListed(all, name, pool.Slices[i].Devices, "")
		}
	}
	return all
}

// AddListed adds the devices of a slice, which was written last as written says. While a pool is rewritten a device may be in two slices.
// It is withdrawn if it is in both.
func AddListed(all map[Allocated]Listed, pool string, devices []resourceapi.Device, written string) {
	for i := range devices {
		d, a := &devices[i], Allocated{Pool: pool, Name: devices[i].Name}
		was, twice := all[a]
		all[a] = Listed{Consumes: d.ConsumesCounters, Withdrawn: (was.Withdrawn || !twice) && isWithdrawn(d), Written: was.Written + written}
	}
}

// HaveFormerNames reports whether all devices of a node are in pools with names that an earlier version gave, and there is one.
func HaveFormerNames(listed map[Allocated]Listed) bool {
	for a := range listed {
		if !device.IsFormerPool(a.Pool) {
			return false
		}
	}
	return len(listed) > 0
}

func isWithdrawn(d *resourceapi.Device) bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == TaintWithdrawn })
}

// Withdrawals decide how long a device stays in its slice after the node stops offering it: until no claim can have it. The
// scheduler counts the shared counters of an allocated device that is in no slice as free (Kubernetes issue 140802), and the node
// learns of an allocation only from the kubelet's call for the claim.
//
//	offered -> withdrawn -> tainted -> due -> released
//
// A withdrawn device is tainted once the API server has the taint. It is due when no scheduler can act on what it saw before. Then the
// API server says which devices claims have: these stay, and are due again later, and the others are released. A device on offer starts
// from the beginning. An earlier instance that has not ended may put one on offer again, and this one's taint be back before anybody reads
// the slice. So the time of what an earlier instance published begins again, once, if the slice was written meanwhile. By its end that
// instance is no longer there. Moments are seconds on the caller's clock, which never goes back. Withdrawals are not safe for concurrent use, and
// nothing of them is on disk: an instance begins with what the API server has, by [Withdrawals.Seed].
type Withdrawals struct {
	devices map[Allocated]*withdrawal
	// next numbers the withdrawals.
	next uint64
}

// withdrawal is a device that is in the node's slices.
type withdrawal struct {
	state withdrawalState
	// number distinguishes this withdrawal from an earlier one of the device, to which an answer may refer.
	number uint64
	// due is the moment to ask about a tainted device.
	due int64
	// consumes holds the counters that it was published with.
	consumes []resourceapi.DeviceCounterConsumption
	// inherited is set while an earlier instance may put the device on offer again, and written is its slice when it had the taint.
	inherited bool
	written   string
}

type withdrawalState int

const (
	stateOffered   withdrawalState = iota // claims may get it
	stateWithdrawn                        // no longer on offer, and the API server may not know
	stateTainted                          // the API server has the taint
)

// Question is a set of devices about which the API server is asked, with the numbers of their withdrawals.
type Question map[Allocated]uint64

// Seed adds what an earlier instance published. Devices that are no longer on offer count as withdrawn now.
func (w *Withdrawals) Seed(listed map[Allocated]Listed) {
	for a, s := range listed {
		d := w.device(a)
		d.consumes, d.inherited = s.Consumes, true
	}
}

// device returns a device's withdrawal, a new one if there is none.
func (w *Withdrawals) device(a Allocated) *withdrawal {
	if w.devices == nil {
		w.devices = map[Allocated]*withdrawal{}
	}
	d := w.devices[a]
	if d == nil {
		w.next++
		d = &withdrawal{state: stateWithdrawn, number: w.next}
		w.devices[a] = d
	}
	return d
}

// Enter completes a node that is to be published: what lingers, and what devices consumed. A claim has the allocated ones: they are due at
// the moment at the earliest. While records can't be read, any device may be a claim's.
func (w *Withdrawals) Enter(n *Node, due int64, unread bool) {
	n.Lingering = slices.SortedFunc(maps.Keys(w.devices), Allocated.Compare)
	n.Consumed = make(map[Allocated][]resourceapi.DeviceCounterConsumption, len(w.devices))
	for a, d := range w.devices {
		n.Consumed[a] = d.consumes
		if unread {
			d.due = max(d.due, due)
		}
	}
	for _, a := range n.Allocated {
		if d := w.devices[a]; d != nil {
			d.due = max(d.due, due)
		}
	}
}

// Published notes the pools that are handed to the API server.
func (w *Withdrawals) Published(pools map[string]Pool) {
	for a, s := range ListedIn(pools) {
		d := w.device(a)
		d.consumes = s.Consumes
		switch {
		case !s.Withdrawn:
			d.state, d.inherited = stateOffered, false
		case d.state == stateOffered:
			// The new number voids answers to earlier questions: a claim may have got the device while it was on offer
			// again.
			w.next++
			d.state, d.number, d.due = stateWithdrawn, w.next, 0
		}
	}
}

// Open returns the devices for which the API server's slices must be read: whether they have the taint, or still have it now that they are
// due.
func (w *Withdrawals) Open(now int64) Question {
	return w.question(func(d *withdrawal) bool { return d.state == stateWithdrawn || d.state == stateTainted && d.due <= now })
}

// Due returns the devices about which claims must be asked.
func (w *Withdrawals) Due(now int64) Question {
	return w.question(func(d *withdrawal) bool { return d.state == stateTainted && d.due <= now })
}

func (w *Withdrawals) question(is func(*withdrawal) bool) Question {
	q := Question{}
	for a, d := range w.devices {
		if is(d) {
			q[a] = d.number
		}
	}
	return q
}

// Seen notes what the API server's slices have, which were read after the question was made. Devices that have the taint now are due at
// the moment; what is in no slice can't be allocated either.
func (w *Withdrawals) Seen(q Question, listed map[Allocated]Listed, due int64) {
	for a, d := range w.asked(q) {
		s, there := listed[a]
		switch {
		case there && !s.Withdrawn: // not written yet, or written again by an instance that ends
			d.state = stateWithdrawn
		case d.state == stateWithdrawn:
			// A scheduler may still act on a slice without the taint that it saw before, so claims are asked only when
			// that time is over.
			d.state, d.written, d.due = stateTainted, s.Written, max(d.due, due)
		case d.inherited:
			d.inherited = false
			if s.Written != d.written {
				d.due = max(d.due, due)
			}
		}
	}
}

// Answer notes which devices claims have, by a list that was made after the question, and returns the released devices in order. The
// claimed ones are due again at the moment.
func (w *Withdrawals) Answer(q Question, claimed map[Allocated]bool, again int64) []Allocated {
	var released []Allocated
	for a, d := range w.asked(q) {
		if claimed[a] {
			d.due = again
			continue
		}
		// The taint has kept new claims away since before the question, so a device that no claim had then is free to
		// leave its slice.
		delete(w.devices, a)
		released = append(released, a)
	}
	slices.SortFunc(released, Allocated.Compare)
	return released
}

// Postpone makes devices due at a later moment, because the API server did not answer.
func (w *Withdrawals) Postpone(q Question, again int64) {
	for _, d := range w.asked(q) {
		d.due = max(d.due, again)
	}
}

// asked returns the devices of a question whose withdrawal is still the same and not over.
func (w *Withdrawals) asked(q Question) map[Allocated]*withdrawal {
	same := map[Allocated]*withdrawal{}
	for a, number := range q {
		if d := w.devices[a]; d != nil && d.number == number && d.state != stateOffered {
			same[a] = d
		}
	}
	return same
}

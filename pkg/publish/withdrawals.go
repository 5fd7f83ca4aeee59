package publish

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Listed is a device in the node's slices, as the API server or the latest pools list it.
type Listed struct {
	// Consumes are the shared counters that it consumes.
	Consumes []resourceapi.DeviceCounterConsumption
	// Withdrawn is set if the device has [TaintWithdrawn].
	Withdrawn bool
	// Written changes whenever the device's slice is written. It is empty for a device of the latest pools, which have no slice yet.
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

// AddListed adds the devices of a slice to all. The argument written stands for the last write of the slice. While a pool is rewritten, a
// device may be in two slices. It counts as withdrawn only if it is withdrawn in both.
func AddListed(all map[Allocated]Listed, pool string, devices []resourceapi.Device, written string) {
	for i := range devices {
		d, a := &devices[i], Allocated{Pool: pool, Name: devices[i].Name}
		was, twice := all[a]
		all[a] = Listed{Consumes: d.ConsumesCounters, Withdrawn: (was.Withdrawn || !twice) && isWithdrawn(d), Written: was.Written + written}
	}
}

// HaveFormerNames reports whether the node has devices, and all of them are in pools with names that an earlier version gave.
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

// Withdrawals decide how long a device stays in its slice after the node stops offering it: until no claim can have it. Two facts require
// this. The scheduler counts the shared counters of an allocated device that is in no slice as free (Kubernetes issue 140802). And the node
// learns of an allocation only from the kubelet's call for the claim.
//
//	offered -> withdrawn -> tainted -> due -> released
//
// A withdrawn device becomes tainted once the API server has the taint. It is due when no scheduler can still act on a slice from before
// the taint. Then the API server tells which devices claims have. These devices stay, and are due again later; the others are released. A
// device that is offered again starts from the beginning.
//
// An earlier instance of the plugin that has not ended may offer a device again, and this instance may restore the taint before anybody
// reads the slice in between. So for the devices that an earlier instance published, the wait begins again, once, if their slice was
// written meanwhile. When that wait ends, the earlier instance is gone.
//
// Moments are seconds on the caller's clock, which never goes back. Withdrawals are not safe for concurrent use. They keep nothing on disk:
// a new instance starts from what the API server has, by [Withdrawals.Seed].
type Withdrawals struct {
	devices map[Allocated]*withdrawal
	// next numbers the withdrawals.
	next uint64
}

// withdrawal is a device that is in the node's slices.
type withdrawal struct {
	state withdrawalState
	// number distinguishes this withdrawal from earlier ones of the same device. The API server's answer may be about an earlier one.
	number uint64
	// due is the earliest moment to ask about a tainted device.
	due int64
	// consumes are the counters that the device consumed when it was published last.
	consumes []resourceapi.DeviceCounterConsumption
	// inherited is set while an earlier instance may offer the device again. written stands for the last write of the device's slice when
	// this instance first saw the taint.
	inherited bool
	written   string
}

type withdrawalState int

const (
	stateOffered   withdrawalState = iota // claims may get it
	stateWithdrawn                        // no longer on offer, but the API server may not have the taint yet
	stateTainted                          // the API server has the taint
)

// Question is a set of devices about which the API server is asked. Its values are the numbers of their withdrawals.
type Question map[Allocated]uint64

// Seed adds the devices that an earlier instance published. Devices that are no longer on offer count as withdrawn from now on.
func (w *Withdrawals) Seed(listed map[Allocated]Listed) {
	for a, s := range listed {
		d := w.device(a)
		d.consumes, d.inherited = s.Consumes, true
	}
}

// device returns the withdrawal of a device. It creates one if there is none.
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

// Enter sets the lingering devices of a node that is to be published, and what devices consumed. The allocated devices are a claim's, so
// they become due at the moment due at the earliest. If unread is set, the node's records can't be read and any device may be a claim's, so
// this applies to all devices.
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

// Published records the pools that are handed to the API server.
func (w *Withdrawals) Published(pools map[string]Pool) {
	for a, s := range ListedIn(pools) {
		d := w.device(a)
		d.consumes = s.Consumes
		switch {
		case !s.Withdrawn:
			d.state, d.inherited = stateOffered, false
		case d.state == stateOffered:
			// The new number makes answers to earlier questions void: a claim may have got the device while it was on offer again.
			w.next++
			d.state, d.number, d.due = stateWithdrawn, w.next, 0
		}
	}
}

// Open returns the devices for which the API server's slices must be read. These are the withdrawn devices, which may have the taint by
// now, and the devices that are due, which must still have it.
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

// Seen records the API server's slices, which must be read after the question was made. Devices that have the taint now become due at the
// moment due. So do devices that are in no slice, which can't be allocated either.
func (w *Withdrawals) Seen(q Question, listed map[Allocated]Listed, due int64) {
	for a, d := range w.asked(q) {
		s, there := listed[a]
		switch {
		case there && !s.Withdrawn: // not written yet, or written again by an instance that ends
			d.state = stateWithdrawn
		case d.state == stateWithdrawn:
			// A scheduler may still act on a slice from before the taint, so claims are asked only when that is no longer possible.
			d.state, d.written, d.due = stateTainted, s.Written, max(d.due, due)
		case d.inherited:
			d.inherited = false
			if s.Written != d.written {
				d.due = max(d.due, due)
			}
		}
	}
}

// Answer records which devices claims have, by a list of claims that was made after the question. It returns the released devices in order.
// Devices that claims have become due again at the moment again.
func (w *Withdrawals) Answer(q Question, claimed map[Allocated]bool, again int64) []Allocated {
	var released []Allocated
	for a, d := range w.asked(q) {
		if claimed[a] {
			d.due = again
			continue
		}
		// The taint has kept new claims away since before the question. So a device that no claim has by now can leave its slice.
		delete(w.devices, a)
		released = append(released, a)
	}
	slices.SortFunc(released, Allocated.Compare)
	return released
}

// Postpone makes the devices of a question due later, because the API server did not answer.
func (w *Withdrawals) Postpone(q Question, again int64) {
	for _, d := range w.asked(q) {
		d.due = max(d.due, again)
	}
}

// asked returns those devices of a question whose withdrawal is still the same and not over.
func (w *Withdrawals) asked(q Question) map[Allocated]*withdrawal {
	same := map[Allocated]*withdrawal{}
	for a, number := range q {
		if d := w.devices[a]; d != nil && d.number == number && d.state != stateOffered {
			same[a] = d
		}
	}
	return same
}

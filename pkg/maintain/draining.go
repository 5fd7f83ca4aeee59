package maintain

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Draining is a drain with its progress.
type Draining struct {
	journal.Drain
	// Functions are all functions that are drained together, the named function included.
	Functions []DrainedFunction `json:"functions"`
	// Holders are the claims that still have one of the functions. Quarantined are ended claims whose functions could
	// not be proven clean and stay on VFIO.
	Holders     []plan.Ref `json:"holders"`
	Quarantined []plan.Ref `json:"quarantined"`
	// Unsure is the path of a record that can't be read and that may be of a claim with one of the functions.
	Unsure string `json:"unsure,omitempty"`
	// bound are the records of functions that policy "bound" keeps on VFIO.
	bound []*journal.Record
}

// Done reports whether no claim has one of the functions, no quarantine and no policy "bound" keeps one on VFIO, and no
// unreadable record may be of such a claim.
func (d *Draining) Done() bool {
	return len(d.Holders) == 0 && len(d.Quarantined) == 0 && len(d.bound) == 0 && d.Unsure == ""
}

// Due reports whether a function can return to its driver now.
func (d *Draining) Due() bool {
	return len(d.bound) > 0 && len(d.Holders) == 0 && len(d.Quarantined) == 0 && d.Unsure == ""
}

// Has reports whether the drain covers a function.
func (d *Draining) Has(a pci.Address) bool {
	return slices.ContainsFunc(d.Functions, func(f DrainedFunction) bool { return f.Address == a })
}

// add adds a record to the progress. In homes it notes the drivers to which the record's functions return.
func (d *Draining) add(rec *journal.Record, homes map[pci.Address]string) {
	switch {
	case rec.Kind == journal.Bound && rec.State != journal.Quarantined:
		d.bound = append(d.bound, rec)
	case rec.State == journal.Quarantined:
		d.Quarantined = append(d.Quarantined, rec.Plan.Claim)
	default:
		d.Holders = append(d.Holders, rec.Plan.Claim)
	}
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		// A claim of a bound function found the function on VFIO. Only the record of policy "bound" has its original
		// driver.
		if _, known := homes[fn.Address]; !known || rec.Kind == journal.Bound {
			homes[fn.Address] = fn.Original.Driver
		}
	}
}

// DrainedFunction is one function of a drain.
type DrainedFunction struct {
	Address pci.Address `json:"address"`
	// Name is its name in ResourceSlices.
	Name string `json:"name,omitempty"`
	// Driver is its current driver, and Home is the driver that it returns to.
	Driver string `json:"driver"`
	Home   string `json:"home"`
	// Gone says that the function is not on the bus.
	Gone bool `json:"gone,omitempty"`
}

// draining returns the progress of a drain, by the journal and a snapshot.
func (m *Maintainer) draining(snap *device.Snapshot, d journal.Drain) *Draining {
	state := &Draining{Drain: d, Holders: []plan.Ref{}, Quarantined: []plan.Ref{}}
	records, errs := m.order.Effects.Journal.List()
	state.Unsure = journal.Damaged(errs)
	homes := map[pci.Address]string{}
	if d.Gone {
		state.Functions = []DrainedFunction{{Address: d.Address, Gone: true}}
		return state
	}
	addrs := drainAddresses(snap, d.Address)
	for _, rec := range records {
		mine := d.Concerns(rec) || slices.ContainsFunc(rec.Held(snap), func(a pci.Address) bool { return slices.Contains(addrs, a) })
		// Records of earlier boots hold nothing, except for quarantines.
		if mine && (rec.BootID == snap.Host.BootID || rec.State == journal.Quarantined) {
			state.add(rec, homes)
		}
	}
	for _, a := range addrs {
		state.Functions = append(state.Functions, drainedFunction(snap, a, homes))
	}
	return state
}

func drainedFunction(snap *device.Snapshot, a pci.Address, homes map[pci.Address]string) DrainedFunction {
	f, ok := snap.Function(a)
	if !ok {
		return DrainedFunction{Address: a, Gone: true, Home: homes[a]}
	}
	home, recorded := homes[a]
	if !recorded {
		home = f.Driver
	}
	return DrainedFunction{Address: a, Name: f.Name(), Driver: f.Driver, Home: home}
}

// drainedWith returns the drain that covers a function. It may be a drain of the function, of a function whose drain
// set includes it, or of a device that had the address before.
func drainedWith(snap *device.Snapshot, a pci.Address, drains []journal.Drain) (journal.Drain, bool) {
	own := func(d journal.Drain) bool { return d.Address == a && !d.Gone }
	covers := func(d journal.Drain) bool { return !d.Gone && slices.Contains(drainAddresses(snap, d.Address), a) }
	former := func(d journal.Drain) bool { return d.Address == a }
	for _, is := range []func(journal.Drain) bool{own, covers, former} {
		if i := slices.IndexFunc(drains, is); i >= 0 {
			return drains[i], true
		}
	}
	return journal.Drain{}, false
}

// again finds a drain in a list that was read later.
func again(d journal.Drain, drains []journal.Drain) (journal.Drain, bool) {
	i := slices.IndexFunc(drains, func(o journal.Drain) bool {
		return o.Identity == d.Identity && (d.Identity != device.Identity{} || o.Address == d.Address)
	})
	if i < 0 {
		return d, false
	}
	return drains[i], true
}

// drainAddresses returns the addresses of all functions that are drained with a. a itself is always included, even if
// no function is there.
func drainAddresses(snap *device.Snapshot, a pci.Address) []pci.Address {
	f, ok := snap.Function(a)
	if !ok {
		return []pci.Address{a}
	}
	var addrs []pci.Address
	for _, f := range plan.DrainSet(snap, f) {
		addrs = append(addrs, f.Address)
	}
	return addrs
}

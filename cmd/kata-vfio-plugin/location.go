package main

import (
	"context"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// locations are the present places of a record's functions that are no longer at their recorded addresses.
type locations struct {
	// moved are the present addresses, by the recorded ones: bus numbers have changed, or the card is in another slot.
	moved map[pci.Address]pci.Address
	// gone are the recorded addresses of functions that are not on the node. Another device may be there.
	gone []pci.Address
}

// snapshot reads the node's functions; nil if they can't be read. Then records are shown with the addresses in them.
func (o *options) snapshot(ctx context.Context) *device.Snapshot {
	fs, err := sysfs.Open(o.node.Root)
	if err != nil {
		return nil
	}
	defer func() { _ = fs.Close() }()
	snap, err := inventory.Scan(ctx, fs)
	if err != nil {
		return nil
	}
	return snap
}

// locate finds the functions of a record in a snapshot, which may be nil.
func locate(rec *journal.Record, snap *device.Snapshot) locations {
	l := locations{moved: map[pci.Address]pci.Address{}}
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if snap == nil || fn.Identity == (device.Identity{}) {
			continue
		}
		found := snap.Find(fn.Identity)
		f, taken := snap.Function(fn.Address)
		switch {
		// Unless the match is sure, the recorded address is shown: another card of the same model may have been found.
		case found.Sure && found.Function.Address != fn.Address:
			l.moved[fn.Address] = found.Function.Address
		case found.Function == nil && (!taken || fn.Identity.Match(snap.Identify(f)) == device.Differs):
			l.gone = append(l.gone, fn.Address)
		}
	}
	return l
}

// followed returns a record as its end begins: a quarantine of an earlier boot follows its functions to their places in a snapshot,
// which may be nil.
func followed(rec *journal.Record, snap *device.Snapshot) *journal.Record {
	if snap == nil || rec.State != journal.Quarantined || rec.BootID == snap.Host.BootID {
		return rec
	}
	own := *rec
	own.Plan = rec.Plan.Follow(snap)
	return &own
}

// locateDrains is [journal.LocateDrains] for a snapshot that may be nil.
func locateDrains(drains []journal.Drain, snap *device.Snapshot) []journal.Drain {
	if snap == nil {
		return drains
	}
	return journal.LocateDrains(drains, snap)
}

// locateResetMarks returns marks with the addresses of their functions in a snapshot, which may be nil.
func locateResetMarks(marks []journal.ResetMark, snap *device.Snapshot) []journal.ResetMark {
	if snap == nil || len(marks) == 0 {
		return marks
	}
	located, finder := slices.Clone(marks), device.NewFinder(snap)
	for i := range located {
		located[i].Address = present(located[i].Address, located[i].Identity, finder)
	}
	return located
}

// present returns where a marked function is now; where it was, if that is not known.
func present(was pci.Address, id device.Identity, finder *device.Finder) pci.Address {
	if id == (device.Identity{}) {
		return was
	}
	if f := finder.Find(id).Function; f != nil {
		return f.Address
	}
	return was
}

// now returns the present address of the function whose recorded address is a.
func (l *locations) now(a pci.Address) pci.Address {
	if at, ok := l.moved[a]; ok {
		return at
	}
	return a
}

// joined lists recorded addresses, with the present ones of functions that have moved.
func (l *locations) joined(addrs []pci.Address) string {
	words := make([]string, len(addrs))
	for i, a := range addrs {
		words[i] = a.String()
		if at, ok := l.moved[a]; ok {
			words[i] += " (now " + at.String() + ")"
		} else if slices.Contains(l.gone, a) {
			words[i] += " (gone)"
		}
	}
	return strings.Join(words, ", ")
}

package prepare

import (
	"context"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// A claim whose record is lost has no end: nobody unprepares it, and the ledger would
// name its tenant as the holder for ever. Its end is written when what it had is found
// as a stray and no process has any of it.

// claimsWithoutRecord returns the tenancies that had a stray and have neither an end in the
// ledger nor a record, each from its Prepare on. It says why where a process still has
// something of one.
func (p *Preparer) claimsWithoutRecord(ctx context.Context, f *device.Function) (lost [][]ledger.Event, why string, err error) {
	ids := []string{BoundID(f)}
	last, err := p.Ledger.Last(ctx, f.Address, ledger.Prepare)
	if err != nil {
		return nil, "", err
	}
	if last != nil && last.Claim != nil && last.Claim.UID != ids[0] {
		ids = append(ids, last.Claim.UID)
	}
	for _, id := range ids {
		events, err := p.claimWithoutRecord(ctx, id)
		if err != nil {
			return nil, "", err
		}
		if len(events) == 0 {
			continue
		}
		if err := p.allUnheld(ctx, id, addressesOf(&events[0])); isUse(err) {
			return nil, oneLine(err), nil
		} else if err != nil {
			return nil, "", err
		}
		lost = append(lost, events)
	}
	return lost, "", nil
}

// claimWithoutRecord returns the events of a claim that has neither a record nor an end.
func (p *Preparer) claimWithoutRecord(ctx context.Context, uid string) ([]ledger.Event, error) {
	if rec, err := p.Journal.Load(uid); err != nil || rec != nil {
		return nil, err
	}
	events, err := p.Ledger.Tenancy(ctx, uid)
	if slices.ContainsFunc(events, func(e ledger.Event) bool { return e.Type == ledger.Unprepare }) {
		return nil, err
	}
	return events, err
}

// allUnheld is unheld, by a fresh look, for those of the functions that are on VFIO.
func (p *Preparer) allUnheld(ctx context.Context, uid string, addrs []pci.Address) error {
	ref := plan.Ref{UID: uid}
	snap, err := p.refresh(ctx, ref, addrs)
	if err != nil {
		return err
	}
	return p.unheld(ctx, snap, ref, onVFIO(snap, addrs))
}

// endWithoutRecord marks what lost claims had, and writes their ends.
func (p *Preparer) endWithoutRecord(ctx context.Context, lost [][]ledger.Event) error {
	for _, events := range lost {
		uid := events[0].Claim.UID
		for _, a := range addressesOf(&events[0]) {
			m := journal.ResetMark{Address: a, Claim: uid, Why: recordLost, Since: time.Now().UTC().Format(time.RFC3339)}
			if err := p.Journal.MarkNeedsReset(m); err != nil {
				return err
			}
		}
		// By its UID alone: the names in the ledger may be pseudonyms.
		if err := p.record(ctx, plan.Ref{UID: uid}, endOf(events)...); err != nil {
			return err
		}
	}
	return nil
}

const recordLost = "its claim's record was lost"

// endOf returns the events that end a tenancy: the VM has not got its devices any more,
// and neither has the claim.
func endOf(events []ledger.Event) []ledger.Event {
	var end []ledger.Event
	m := backfilling{recorded: events}
	if last := m.last(ledger.Open, ledger.Close); last != nil && last.Type == ledger.Open {
		end = append(end, ledger.Event{Type: ledger.Close, Devices: devicesNamed(&events[0]), VM: last.VM, Late: true, Reason: recordLost})
	}
	return append(end, ledger.Event{
		Type: ledger.Unprepare, Devices: devicesNamed(&events[0]), Codes: []string{ledger.CodeUnproven}, Late: true, Reason: recordLost,
	})
}

func addressesOf(e *ledger.Event) []pci.Address {
	addrs := make([]pci.Address, len(e.Devices))
	for i := range e.Devices {
		addrs[i] = e.Devices[i].Address
	}
	return addrs
}

// devicesNamed returns an event's devices by what names them.
func devicesNamed(e *ledger.Event) []ledger.Device {
	list := make([]ledger.Device, len(e.Devices))
	for i := range e.Devices {
		d := &e.Devices[i]
		list[i] = ledger.Device{Address: d.Address, Name: d.Name, Role: d.Role, Group: d.Group}
	}
	return list
}

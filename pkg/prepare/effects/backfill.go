package effects

import (
	"context"
	"reflect"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Backfill writes the events that the ledger lacks, because a crash or a full disk came between an effect and its
// event. It derives them from the record and from the kernel's state. The events are marked as late, because their time
// is not known. If a claim is older than the node's ledger, its events are late too.
func (set *Set) Backfill(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if set.Ledger == nil {
		return nil
	}
	told, err := set.Ledger.Tenancy(ctx, rec.ID())
	if err != nil {
		return &EvidenceError{Claim: rec.Plan.Claim, Err: err}
	}
	if len(told) == 0 && rec.State == journal.Preparing {
		return nil // the first event is written before the first effect, so there was no effect
	}
	m := backfilling{rec: rec, recorded: told}
	if len(told) == 0 {
		m.add(ledger.Event{Type: ledger.Prepare, Devices: LedgerDevices(snap, rec)})
	}
	if rec.BootID == snap.Host.BootID {
		m.bindings(func(fn *plan.Function) (string, bool) {
			now, err := set.Executor.Binding(ctx, fn.Address)
			return now.Driver, err == nil && set.CheckFunction(fn) == nil
		})
	}
	m.resets()
	m.sandbox(snap)
	if last := m.last(ledger.Quarantine, ledger.Release); rec.State == journal.Quarantined && (last == nil || last.Type == ledger.Release) {
		m.add(QuarantineEvent(rec))
	}
	return set.Record(ctx, rec.Plan.Claim, m.events...)
}

// backfilling collects the events that are missing in the ledger.
type backfilling struct {
	rec      *journal.Record
	recorded []ledger.Event
	events   []ledger.Event
}

func (m *backfilling) add(e ledger.Event) {
	e.Late = true
	m.events = append(m.events, e)
}

func (m *backfilling) last(types ...ledger.Type) *ledger.Event { return FindLast(m.recorded, types...) }

// bindings compares the drivers that the kernel has bound with the last ones in the ledger. While Kata's sandbox has a
// function, Kata binds it, and those bindings are not recorded.
func (m *backfilling) bindings(driver func(*plan.Function) (string, bool)) {
	for i := range m.rec.Plan.Functions {
		fn := &m.rec.Plan.Functions[i]
		if _, ours := FindBinding(m.rec, fn); !ours && m.rec.State == journal.Prepared {
			continue
		}
		now, known := driver(fn)
		if before := m.driverRecorded(fn.Address, fn.Original.Driver); known && now != before {
			m.add(bindEvent(fn.Address, before, now))
		}
	}
}

func (m *backfilling) driverRecorded(a pci.Address, original string) string {
	driver := original
	for i := range m.recorded {
		for _, d := range m.recorded[i].Devices {
			if m.recorded[i].Type == ledger.Bind && d.Address == a && d.DriverAfter != nil {
				driver = *d.DriverAfter
			}
		}
	}
	return driver
}

// resets adds the record's proofs that are missing in the ledger.
func (m *backfilling) resets() {
	for i := range m.rec.Proofs {
		e := resetEvent(&m.rec.Proofs[i], nil)
		if !slices.ContainsFunc(m.recorded, func(t ledger.Event) bool { return t.Type == ledger.Reset && reflect.DeepEqual(t.Reset, e.Reset) }) {
			m.add(e)
		}
	}
}

// sandbox adds the missing event that the functions went to the record's sandbox, or that the last sandbox in the
// ledger no longer has them.
func (m *backfilling) sandbox(snap *device.Snapshot) {
	vm, last := ledgerVM(m.rec.Sandbox), m.last(ledger.Open, ledger.Close)
	if last != nil && last.Type == ledger.Open && last.VM != nil && (vm == nil || vm.Sandbox != last.VM.Sandbox) {
		m.add(ledger.Event{Type: ledger.Close, Devices: Briefly(m.rec), VM: last.VM, Reason: "the sandbox did not get the devices: the hand-over was interrupted"})
	}
	if vm == nil {
		return
	}
	if !slices.ContainsFunc(m.recorded, func(t ledger.Event) bool { return t.Type == ledger.Open && t.VM != nil && *t.VM == *vm }) {
		m.add(OpenEvent(snap, m.rec))
	}
}

// FindLast returns the last event of one of the types, or nil.
func FindLast(events []ledger.Event, types ...ledger.Type) *ledger.Event {
	for i := range slices.Backward(events) {
		if slices.Contains(types, events[i].Type) {
			return &events[i]
		}
	}
	return nil
}

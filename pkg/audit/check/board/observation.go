package board

import (
	"os"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// goodObservation begins the node's ledger, as the plugin does at its start.
func (t *Tree) goodObservation() { t.Record(ledger.Event{Type: ledger.Start}) }

// Record appends events to the node's ledger. Each without a result was well.
func (t *Tree) Record(events ...ledger.Event) {
	t.TB.Helper()
	if t.ledger == nil {
		t.ledger = t.openLedger()
	}
	for i := range events {
		if events[i].Result == "" {
			events[i].Result = ledger.OK
		}
	}
	if _, err := t.ledger.Append(t.TB.Context(), events...); err != nil {
		t.TB.Fatal(err)
	}
}

// NewLedger has another process go on with the ledger, or begin one in the place of
// what was removed.
func (t *Tree) NewLedger() { t.ledger = t.openLedger() }

func (t *Tree) openLedger() *writer.Writer {
	t.TB.Helper()
	at := time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC)
	w, err := writer.Open(t.TB.Context(), writer.Config{
		Dir: t.Path(ledger.DefaultDir), Node: t.Name, BootID: t.bootID(), Actor: ledger.Actor{Component: "kata-vfio-plugin", Version: "v1.0.0"},
		Now: func() (time.Time, int64) {
			at = at.Add(time.Minute)
			return at, at.UnixNano()
		},
	})
	if err != nil {
		t.TB.Fatal(err)
	}
	return w
}

// recordPrepared tells of a record's beginning: the claim, and what was bound for it.
func (t *Tree) recordPrepared(rec *journal.Record) {
	t.TB.Helper()
	claim := ClaimOf(rec)
	prepare := ledger.Event{Type: ledger.Prepare, Claim: claim}
	for _, p := range rec.Plan.Claim.Pods {
		prepare.Pods = append(prepare.Pods, ledger.Pod{UID: p.UID, Name: p.Name})
	}
	var events []ledger.Event
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		prepare.Devices = append(prepare.Devices, ledger.Device{Address: fn.Address, Role: string(fn.Role), Vendor: fn.Vendor, Device: fn.Device, Group: new(fn.Group)})
		if now := t.driver(fn.Address.String()); now != fn.Original.Driver {
			events = append(events, ledger.Event{Type: ledger.Bind, Claim: claim, Devices: []ledger.Device{{
				Address: fn.Address, DriverBefore: new(fn.Original.Driver), DriverAfter: new(now),
			}}})
		}
	}
	t.Record(append([]ledger.Event{prepare}, events...)...)
}

// recordOpened tells of the hand-over to the record's sandbox.
func (t *Tree) recordOpened(rec *journal.Record) {
	t.TB.Helper()
	e := ledger.Event{Type: ledger.Open, Claim: ClaimOf(rec), VM: &ledger.VM{
		Sandbox: rec.Sandbox.ID, PID: rec.Sandbox.VMM.PID, StartTime: rec.Sandbox.VMM.StartTime, Since: rec.Sandbox.Since,
	}}
	for _, a := range rec.Plan.Addresses() {
		e.Devices = append(e.Devices, ledger.Device{Address: a})
	}
	t.Record(e)
}

// ClaimOf names the claim of a record as the ledger does.
func ClaimOf(rec *journal.Record) *ledger.Claim {
	c := rec.Plan.Claim
	return &ledger.Claim{UID: c.UID, Namespace: c.Namespace, Name: c.Name}
}

// driver returns the driver that the kernel has bound to a function.
func (t *Tree) driver(address string) string {
	target, err := os.Readlink(t.Path("sys/bus/pci/devices/" + address + "/driver"))
	if err != nil {
		return ""
	}
	return target[strings.LastIndexByte(target, '/')+1:]
}

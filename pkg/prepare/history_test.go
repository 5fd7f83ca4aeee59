package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// summary is an event in a few words.
func summary(e *ledger.Event) string {
	words := []string{string(e.Type)}
	if e.Late {
		words = append(words, "late")
	}
	if e.Result != ledger.OK {
		words = append(words, string(e.Result))
	}
	if e.Type == ledger.Bind && e.Result == ledger.OK {
		words = append(words, fmt.Sprintf("%q to %q", *e.Devices[0].DriverBefore, *e.Devices[0].DriverAfter))
	}
	if e.VM != nil {
		words = append(words, e.VM.Sandbox)
	}
	if e.VM != nil && e.VM.PID != 0 {
		words = append(words, fmt.Sprint(e.VM.PID))
	}
	return strings.Join(append(words, e.Codes...), " ")
}

func (w *world) wantHistory(uid string, want ...string) {
	w.t.Helper()
	var got []string
	for _, e := range w.told(uid) {
		got = append(got, summary(&e))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestTenancyIsToldFromPrepareToUnprepare(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.mustHandOver("first")
	vmm := journal.Sandbox{ID: "first", VMM: journal.Process{PID: 4711, StartTime: 99}}
	if err := w.plugin(nil).HandOver(t.Context(), uid, vmm); err != nil {
		t.Fatal(err)
	}
	w.mustHandOver("second")
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	driver := `"nvidia"`
	w.wantHistory(uid, "prepare", "bind "+driver+` to "vfio-pci"`, "open first", "open first 4711",
		"close first 4711", "reset", "open second", "close second", "reset", `bind "vfio-pci" to `+driver, "unprepare second")
	for _, e := range w.told(uid) {
		switch {
		case e.Claim.Namespace != "tenant-a" || !e.Concerns(gpu):
			t.Errorf("%s: claim %+v, devices %+v; want tenant-a and %s", e.Type, e.Claim, e.Devices, gpu)
		case e.Type == ledger.Reset && (!e.Reset.OK || !e.Reset.Match || len(e.Reset.Before) == 0 || len(e.Reset.After) == 0):
			t.Errorf("reset %+v, want it OK, with fingerprints that match", e.Reset)
		case e.Type == ledger.Open || e.Type == ledger.Prepare:
			d := e.Devices[0]
			if d.Isolation == nil || !d.Isolation.Isolated || len(d.Isolation.Evidence) == 0 || len(d.GroupMembers) == 0 || d.Vendor != 0x10de {
				t.Errorf("%s: device %+v, want vendor 10de, its group, and its isolation with evidence", e.Type, d)
			}
		}
	}
}

func TestRefusalIsToldOnce(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request("other", gpu))
	p := w.plugin(nil)
	for range 3 {
		if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err == nil {
			t.Fatal("prepared")
		}
	}
	w.wantHistory(uid, "refusal refused Held")
	if _, err := p.Unprepare(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
		t.Fatal(err)
	}
}

// TestRefusalsInALoopDoNotFillTheLedger: a tenant makes one refused claim after the
// other. Some are told, and another tenant's are told as before.
func TestRefusalsInALoopDoNotFillTheLedger(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request("other", gpu))
	p, req := w.plugin(nil), w.request(uid, gpu)
	refuse := func(namespace, uid string) {
		t.Helper()
		again := *req
		again.Namespace, again.UID = namespace, uid
		if _, err := p.Prepare(t.Context(), &again); err == nil {
			t.Fatal("prepared")
		}
	}
	told := 0
	for i := range 100 {
		refuse("loop", fmt.Sprint("claim-", i))
		told += len(w.told(fmt.Sprint("claim-", i)))
	}
	if told < 10 || told > 30 {
		t.Errorf("%d of 100 refusals are told, want some twenty", told)
	}
	refuse("another", uid)
	w.wantHistory(uid, "refusal refused Held")
}

// countedLedger counts how often the ledger is read.
type countedLedger struct {
	effects.Ledger
	one, several, remembered int
	recalled                 bool
}

func (c *countedLedger) Remember(ctx context.Context, addrs []pci.Address, types ...ledger.Type) error {
	c.remembered++
	return c.Ledger.Remember(ctx, addrs, types...)
}

func (c *countedLedger) Tenancy(ctx context.Context, uid string) ([]ledger.Event, error) {
	if !c.recalled {
		c.one++
	}
	return c.Ledger.Tenancy(ctx, uid)
}

func (c *countedLedger) Recall(ctx context.Context, uids []string) (func(), error) {
	c.several++
	forget, err := c.Ledger.Recall(ctx, uids)
	c.recalled = err == nil
	return func() { c.recalled = false; forget() }, err
}

// TestRecoverReadsTheLedgerOnce: a start must not take the longer the more claims
// there are, whatever state they are in. What is missing is told all the same.
func TestRecoverReadsTheLedgerOnce(t *testing.T) {
	for name, reboot := range map[string]bool{"in the same boot": false, "after a reboot": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.quarantined()
			for i := range 4 {
				w.mustPrepare(w.request(fmt.Sprint("claim-", i), w.k.AddGPU(uint8(0x3c+i))))
			}
			silent := w.plugin(nil, func(c *prepare.Config) { c.Parts.Ledger = nil })
			if err := silent.HandOver(t.Context(), "claim-1", journal.Sandbox{ID: "first"}); err != nil {
				t.Fatal(err)
			}
			moved := w.record("claim-3").Plan.Functions[0].Address.String()
			if err := w.k.Write("sys/bus/pci/drivers/vfio-pci/unbind", []byte(moved)); err != nil {
				t.Fatal(err)
			}
			if reboot {
				w.k.Reboot()
			}
			counted := &countedLedger{Ledger: w.writer()}
			p := w.plugin(nil, func(c *prepare.Config) { c.Parts.Ledger = counted })
			r, err := p.Recover(t.Context())
			if err != nil || len(r.Unfinished) > 0 || len(r.Kept)+len(r.Undone) != 4 || len(r.Quarantined) != 1 {
				t.Fatalf("Recover = %+v, %v; want 4 claims kept or undone, and 1 quarantined", r, err)
			}
			if counted.one != 0 || counted.several != 1 || counted.recalled {
				t.Errorf("the ledger was read %d times for one claim and %d times for several, want once for all; still recalled: %t",
					counted.one, counted.several, counted.recalled)
			}
			if !reboot {
				w.wantHistory("claim-1", "prepare", `bind "nvidia" to "vfio-pci"`, "open late first")
				w.wantHistory("claim-2", "prepare", `bind "nvidia" to "vfio-pci"`)
			}
		})
	}
}

// TestNothingIsHandedOverWithoutItsEvent fails each event once, of every act.
func TestNothingIsHandedOverWithoutItsEvent(t *testing.T) {
	full := errors.New("no space left on device")
	for name, run := range map[string]func(*world, *plugin, pci.Address) error{
		"prepare": func(w *world, p *plugin, gpu pci.Address) error {
			_, err := p.Prepare(w.t.Context(), w.request(uid, gpu))
			return err
		},
		"hand over": func(w *world, p *plugin, gpu pci.Address) error {
			w.mustPrepare(w.request(uid, gpu))
			return p.HandOver(w.t.Context(), uid, journal.Sandbox{ID: "first"})
		},
		"unprepare": func(w *world, p *plugin, gpu pci.Address) error {
			w.mustPrepare(w.request(uid, gpu))
			w.mustHandOver("first")
			_, err := p.Unprepare(w.t.Context(), uid)
			return err
		},
	} {
		w := newWorld(t)
		gpu := w.k.AddGPU(0x3b)
		p := w.plugin(nil, func(c *prepare.Config) { c.Parts.Ledger = fullLedger{c.Parts.Ledger, full} })
		err := run(w, p, gpu)
		if _, ok := errors.AsType[*effects.EvidenceError](err); !ok || !errors.Is(err, full) {
			t.Errorf("%s: %v, want an EvidenceError because of %v", name, err, full)
		}
		switch rec := w.record(uid); {
		case name == "prepare" && (rec != nil || w.hasSpec(uid)):
			t.Errorf("%s: record %+v, want neither record nor CDI spec", name, rec)
		case name == "hand over" && rec.Sandbox != nil:
			t.Errorf("%s: it went to %+v, want no sandbox", name, rec.Sandbox)
		case name == "unprepare" && (rec == nil || rec.State == journal.Quarantined):
			t.Errorf("%s: record %+v, want one that is not quarantined", name, rec)
		}
		if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
			t.Errorf("%s: with space again: %v, want nil", name, err)
		}
		if name != "prepare" { // of which nothing is left, so that nothing is told
			w.wantWholeHistory(name, false)
		}
	}
}

// A checkpoint leaves the node after Prepare: no power failure may take back what it covers.
func TestPrepareReturnsWhenItsEventsAreOnDisk(t *testing.T) {
	w := newWorld(t)
	p := &power{}
	if _, err := w.plugin(p).Prepare(t.Context(), w.request(uid, w.k.AddGPU(0x3b))); err != nil {
		t.Fatal(err)
	}
	if p.ledgerLost != nil {
		t.Error("events of the claim are not on disk")
	}
}

// fullLedger has no room.
type fullLedger struct {
	effects.Ledger
	err error
}

func (f fullLedger) Append(context.Context, ...ledger.Event) (string, error) { return "", f.err }
func (f fullLedger) AppendSoon(context.Context, ...ledger.Event) error       { return f.err }
func (f fullLedger) Sync(context.Context) error                              { return f.err }

// A node that gets a ledger while VMs have its devices begins it with them.
func TestHistoryBackfillsEarlierAssignments(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.mustHandOver("first")
	if err := os.RemoveAll(w.history); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.plugin(nil).Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantHistory(uid, "prepare late", `bind late "nvidia" to "vfio-pci"`, "open late first")
	}
}

func TestQuarantineAndItsEndAreTold(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO })
	var q *prepare.QuarantinedError
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); !errors.As(err, &q) {
		t.Fatalf("Unprepare = %v, want a QuarantinedError", err)
	}
	w.wantHistory(uid, "prepare", `bind "nvidia" to "vfio-pci"`, "reset failed", "quarantine")
	w.k.OnReset(gpu, nil)
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	w.wantHistory(uid, "prepare", `bind "nvidia" to "vfio-pci"`, "reset failed", "quarantine",
		"reset", "release", `bind "vfio-pci" to "nvidia"`, "unprepare")
}

// A damaged ledger keeps devices from tenants, and from nobody who has them.
func TestDamagedLedgerRefusesClaims(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request("other", w.k.AddGPU(0x41)))
	name := filepath.Join(w.history, ledger.SegmentName(0))
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(data, 'p')
	data[i] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu))
	if _, damaged := errors.AsType[*ledger.DamagedError](err); !damaged || w.record(uid) != nil {
		t.Errorf("got %v, record %v; want a DamagedError and no record", err, w.record(uid))
	}
	if _, err := w.plugin(nil).Recover(t.Context()); err != nil || w.record("other") == nil {
		t.Errorf("Recover = %v, record %v; want nil, and the record", err, w.record("other"))
	}
}

// wantWholeHistory checks that a claim's events make sense of each other, whatever
// came between: each driver is the one that was told before, and after the end
// nothing is bound or open.
func (w *world) wantWholeHistory(where string, rebooted bool) {
	w.t.Helper()
	drivers, open, begun := map[pci.Address]string{}, "", false
	endpoints := w.vf != nil && w.vf.Attachment == v1alpha1.AttachPhysicalEndpoint
	for _, e := range w.told(uid) {
		switch e.Type {
		case ledger.Prepare:
			begun = true
		case ledger.Unprepare:
			begun = false
		case ledger.Open:
			open = e.VM.Sandbox
		case ledger.Close:
			if open != e.VM.Sandbox && open != "" {
				w.t.Errorf("%s: %s closed, want %s, which is open", where, e.VM.Sandbox, open)
			}
			open = ""
		case ledger.Bind:
			d := e.Devices[0]
			// Kata binds a physical endpoint itself, without an event.
			if d.DriverAfter == nil { // it failed, somewhere on the way
				delete(drivers, d.Address)
				continue
			}
			if before, told := drivers[d.Address]; told && before != *d.DriverBefore && !rebooted && !endpoints {
				w.t.Errorf("%s: %s goes from %q, want %q", where, d.Address, *d.DriverBefore, before)
			}
			drivers[d.Address] = *d.DriverAfter
		default:
		}
	}
	if begun || open != "" {
		w.t.Errorf("%s: at the end the history says that it is prepared (%t), open in %q; want false, none", where, begun, open)
	}
	for a, driver := range drivers {
		if now := w.bindings()[a].Driver; now != driver && !rebooted {
			w.t.Errorf("%s: at the end %s is on %q, want %q as the history says", where, a, now, driver)
		}
	}
}

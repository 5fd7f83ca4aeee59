package report_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// book writes a node's ledger, an event a minute.
type book struct {
	t   *testing.T
	dir string
	w   *writer.Writer
	at  time.Time
}

func newBook(t *testing.T) *book {
	t.Helper()
	b := &book{t: t, dir: t.TempDir(), at: clock(0, 0)}
	w, err := writer.Open(t.Context(), writer.Config{Dir: b.dir, Node: "gpu-node-07", BootID: "b", Now: func() (time.Time, int64) {
		b.at = b.at.Add(time.Minute)
		return b.at, int64(b.at.Minute())
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.w = w
	return b
}

func (b *book) add(e ledger.Event) {
	b.t.Helper()
	if e.Result == "" {
		e.Result = ledger.OK
	}
	if _, err := b.w.Append(b.t.Context(), e); err != nil {
		b.t.Fatal(err)
	}
}

// had has a tenant take a function for some minutes; ended by a reset, proven or not.
func (b *book) had(a pci.Address, tenant, uid string, minutes int, proven bool) {
	b.t.Helper()
	c := b.has(a, tenant, uid)
	b.at = b.at.Add(time.Duration(minutes) * time.Minute)
	d := []ledger.Device{{Address: a}}
	b.add(ledger.Event{Type: ledger.Close, Claim: c, VM: &ledger.VM{Sandbox: "sandbox-" + uid}, Devices: d})
	b.add(ledger.Event{Type: ledger.Reset, Claim: c, Devices: d, Reset: &ledger.ResetProof{
		Method: isolation.FLR, OK: true, Match: proven, Milliseconds: 104, Set: []pci.Address{a},
	}})
	if !proven {
		b.add(ledger.Event{Type: ledger.Quarantine, Claim: c, Devices: d, Reason: "BAR 2 of " + a.String() + " differs from before the tenant"})
	}
	b.add(ledger.Event{Type: ledger.Unprepare, Claim: c, Devices: d})
}

// has has a tenant take a function.
func (b *book) has(a pci.Address, tenant, uid string) *ledger.Claim {
	b.t.Helper()
	c, d := &ledger.Claim{UID: uid, Namespace: tenant, Name: "claim-" + uid}, []ledger.Device{{Address: a}}
	b.add(ledger.Event{Type: ledger.Prepare, Claim: c, Pods: []ledger.Pod{{UID: "p" + uid, Name: "pod-" + uid}}, Devices: d})
	b.at = b.at.Add(2 * time.Minute)
	b.add(ledger.Event{Type: ledger.Open, Claim: c, VM: &ledger.VM{Sandbox: "sandbox-" + uid, PID: 4711, StartTime: 99}, Devices: d})
	return c
}

func (b *book) read() (*facts.History, *report.Ledger) {
	b.t.Helper()
	h, standing, err := facts.ReadHistory(b.t.Context(), os.DirFS(b.dir), ledger.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	return h, &report.Ledger{Verification: standing, Refusals: h.Refusals}
}

// tamper changes a word that was written.
func (b *book) tamper(old, changed string) {
	b.t.Helper()
	name := b.dir + "/" + ledger.SegmentName(0)
	data, err := os.ReadFile(name)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), old, changed, 1)), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// past is the sample's page with the past by a ledger.
func past(t *testing.T) (*report.Page, *book) {
	t.Helper()
	b, gpu, vf := newBook(t), address("0000:13:00.0"), address("0000:47:00.3")
	b.had(gpu, "team-green", "n1", 100, true)
	b.had(gpu, "team-blue", "n2", 40, true)
	b.had(address("0000:43:00.0"), "team-red", "n3", 80, false)
	b.had(vf, "team-blue", "n4", 20, true)
	b.add(ledger.Event{
		Type: ledger.Refusal, Result: ledger.Refused, Claim: &ledger.Claim{UID: "r", Namespace: "team-red", Name: "late"},
		Devices: []ledger.Device{{Address: address("0000:43:00.0")}}, Codes: []string{"Quarantined"}, Reason: "0000:43:00.0 is quarantined",
	})
	p := samplePage()
	h, l := b.read()
	p.Tenancies = slices.DeleteFunc(p.Tenancies, func(t report.Tenancy) bool { return !t.Open() || t.Device == address("0000:43:00.0") })
	for _, one := range h.Tenancies {
		p.Tenancies = append(p.Tenancies, report.NewTenancy(one))
	}
	p.Ledger = l
	return p, b
}

// partOf returns a function's part of the page.
func partOf(t *testing.T, text, a string) string {
	t.Helper()
	_, part, ok := strings.Cut(text, `<div class="inside" id="d-`+address(a).Label()+`">`)
	if !ok {
		t.Fatalf("%s has no part of its own", a)
	}
	part, _, _ = strings.Cut(part, "</details>")
	return part
}

func TestDevicesPartHasItsHistory(t *testing.T) {
	p, _ := past(t)
	text := render(t, p)
	pf := ""
	for i := range p.Inventory.Devices {
		if d := &p.Inventory.Devices[i]; d.Address == address("0000:47:00.3") {
			pf = d.PFAddress.String()
		}
	}
	for a, wants := range map[string][]string{
		"0000:13:00.0": {"team-green/claim-n1", "team-blue/claim-n2", "team-red/train", "flr, registers as before", "2026-11-22 00:01:00"},
		"0000:43:00.0": {"team-red/claim-n3", "flr, not proven", "quarantined: BAR 2 of 0000:43:00.0 differs"},
		pf:             {"team-blue/claim-n4"},
	} {
		part := partOf(t, text, a)
		for _, want := range wants {
			if !strings.Contains(part, want) {
				t.Errorf("%s: %q is missing", a, want)
			}
		}
	}
	if part := partOf(t, text, "0000:14:00.0"); strings.Contains(part, "Tenancies on record") {
		t.Error("a function that nobody had before has a history")
	}
	for _, want := range []string{
		"The ledger verifies: chain, tree and signatures of its ", "no checkpoint from off the node was compared with", "Claims that did not get their devices",
		"<code>Quarantined</code>", "0000:43:00.0 is quarantined", `class="stay"`, `class="reset"`, `class="reset unproven"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestLedgerThatDoesNotVerifyIsNoEvidence(t *testing.T) {
	p, b := past(t)
	b.tamper("team-blue", "team-blew")
	_, p.Ledger = b.read()
	text := render(t, p)
	verdict, _, _ := strings.Cut(text, `<section id="findings"`)
	if !strings.Contains(verdict, "ledger does not verify") {
		t.Error("beside the verdict nothing says so")
	}
	_, tenancies, _ := strings.Cut(text, `<section id="tenancies"`)
	for _, want := range []string{"✗ The ledger does not verify", "one of the last 1 was changed"} {
		if !strings.Contains(tenancies, want) {
			t.Errorf("with the tenancies, %q is missing", want)
		}
	}
	if part := partOf(t, text, "0000:13:00.0"); !strings.Contains(part, "by a ledger that does not verify") {
		t.Error("at the device nothing says so")
	}
	p.Ledger = &report.Ledger{Missing: "there is no public key"}
	if text := render(t, p); !strings.Contains(text, "The past is unknown: there is no public key") || strings.Contains(text, "ledger verifies") {
		t.Error("why there is none is not said")
	}
}

// TestLongHistoryIsCutToItsLatest, of each function and in all.
func TestLongHistoryIsCutToItsLatest(t *testing.T) {
	p := samplePage()
	p.Tenancies = nil
	for i := range 100 {
		from := clock(0, 0).Add(time.Duration(i) * time.Minute)
		p.Tenancies = append(p.Tenancies, report.Tenancy{Device: address("0000:13:00.0"), Tenant: "t", Claim: fmt.Sprintf("t/claim-%d-", i), From: from, To: from.Add(time.Second)})
	}
	part := partOf(t, render(t, p), "0000:13:00.0")
	if !strings.Contains(part, "claim-99-") || !strings.Contains(part, "claim-90-") || strings.Contains(part, "claim-89-") {
		t.Error("it has not the latest ten")
	}
	if want := "and 90 more: <code>kata-vfio-audit who --device 0000:13:00.0 --history</code>"; !strings.Contains(part, want) {
		t.Errorf("%q is missing", want)
	}
	p = large()
	for i := range p.Inventory.Devices {
		for n := range 5 {
			from := clock(0, n)
			p.Tenancies = append(p.Tenancies, report.Tenancy{Device: p.Inventory.Devices[i].Address, Tenant: "before", Claim: "before/claim", From: from, To: from.Add(time.Second), ResetBefore: clean(), ResetAfter: clean()})
		}
	}
	if size := len(render(t, p)); size >= 2_000_000 {
		t.Errorf("a large node's page has %d bytes with its history", size)
	}
}

// TestLedgersTextsAreBounded: who can write a megabyte into an event does not fill the page.
func TestLedgersTextsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	p, _ := past(t)
	for i := range p.Tenancies {
		if one := p.Tenancies[i].Ledger; one != nil {
			one.Quarantined, one.Doubts, one.Claim.Name = long, slices.Repeat([]string{long}, 100), long
			p.Tenancies[i] = report.NewTenancy(one)
		}
	}
	p.Ledger.Refusals[0].Reason, p.Ledger.Verification.Problems, p.Ledger.Verification.Sound = long, slices.Repeat([]string{long}, 100), false
	p.Ledger.Refusals[0].Codes = slices.Repeat([]string{long}, 1000)
	if size := len(render(t, p)); size > 1<<20 {
		t.Errorf("the page has %d bytes", size)
	}
}

// TestJournalAndTheLedgerAreJoined by the claim's UID: the one has the state and
// the names, the other when and what before.
func TestJournalAndTheLedgerAreJoined(t *testing.T) {
	tree := board.Server(t)
	other := tree.Devices["gpu1"]
	n := read(t, tree)
	if len(n.Tenancies) == 0 {
		t.Fatal("the board has no tenancy")
	}
	held := n.Tenancies[0]
	b := newBook(t)
	b.had(held.Address, "old", "o1", 10, true)
	b.has(held.Address, "pseudonym", held.Record.Plan.Claim.UID)
	b.has(other, "lost", "l1")
	h, _ := b.read()
	var got []string
	for _, one := range report.Tenancies(n, h) {
		if one.Ledger != nil {
			got = append(got, fmt.Sprintf("%s %s open=%v lost=%v state=%s before=%s", one.Device, one.Tenant, one.Open(), one.Lost, one.State, one.ResetBefore.Words()))
		}
	}
	slices.Sort(got)
	want := []string{
		fmt.Sprintf("%s old open=false lost=false state= before=not known", held.Address),
		fmt.Sprintf("%s %s open=true lost=false state=%s before=flr, registers as before", held.Address, held.Tenant(), journal.Prepared),
		fmt.Sprintf("%s lost open=false lost=true state= before=not known", other),
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

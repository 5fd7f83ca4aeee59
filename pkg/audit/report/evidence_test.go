package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

var (
	gpu = pci.Address{Bus: 0x3b}
	vf0 = pci.Address{Bus: 0x5e, Device: 0x10}
	vf1 = pci.Address{Bus: 0x5e, Device: 0x10, Function: 2}
	pf  = pci.Address{Bus: 0x5e}
)

// newLedger returns a ledger's directory, and a function that adds events, one a minute from 08:01 on.
func newLedger(t *testing.T) (root string, add func(ledger.Event)) {
	t.Helper()
	root = t.TempDir()
	minute := 0
	w, err := writer.Open(t.Context(), writer.Config{
		Dir: root, Node: "n1", BootID: "b", Actor: ledger.Actor{Component: "test"},
		Now: func() (time.Time, int64) {
			minute++
			return time.Date(2026, 11, 22, 8, minute, 0, 0, time.UTC), int64(minute)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return root, func(e ledger.Event) {
		t.Helper()
		if e.Result == "" {
			e.Result = ledger.OK
		}
		if _, err := w.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// node writes the ledger of a node on which two tenants had the GPU, one after
// the other, and VFs of one PF at one time; it returns the ledger's
// directory.
func node(t *testing.T) string {
	t.Helper()
	root, add := newLedger(t)
	good := &ledger.Isolation{Isolated: true, Notes: []rule.Code{rule.ATSEnabled}}
	device := ledger.Device{Address: gpu, Group: new(15), GroupMembers: []pci.Address{gpu}, Upstream: []pci.Address{{Bus: 0x3a}}, Isolation: good}
	vf := func(a pci.Address) ledger.Device { return ledger.Device{Address: a, PF: &pf, Isolation: good} }
	tenancy := func(tenant string, end bool, devices ...ledger.Device) {
		c := &ledger.Claim{UID: "uid-" + tenant, Namespace: tenant, Name: "c"}
		add(ledger.Event{Type: ledger.Prepare, Claim: c, Pods: []ledger.Pod{{UID: "pod-" + tenant, Name: "p"}}, Devices: devices})
		add(ledger.Event{Type: ledger.Open, Claim: c, VM: &ledger.VM{Sandbox: "s-" + tenant, PID: 42, StartTime: 7}, Devices: devices})
		if !end {
			return
		}
		add(ledger.Event{Type: ledger.Close, Claim: c, VM: &ledger.VM{Sandbox: "s-" + tenant}, Devices: devices})
		for _, d := range devices {
			add(ledger.Event{Type: ledger.Reset, Claim: c, Devices: []ledger.Device{d}, Reset: &ledger.ResetProof{
				Method: isolation.FLR, OK: true, Match: true, Milliseconds: 120, Set: []pci.Address{d.Address},
			}})
		}
		add(ledger.Event{Type: ledger.Unprepare, Claim: c, Devices: devices})
	}
	tenancy("t1", true, device)
	tenancy("t2", false, device, vf(vf0))
	tenancy("t3", false, vf(vf1))
	add(ledger.Event{Type: ledger.Refusal, Result: ledger.Refused, Claim: &ledger.Claim{UID: "uid-t2", Namespace: "t2", Name: "c"}, Reason: "evil \x1b[31m <script>alert(1)</script>"})
	return root
}

// ask reads the ledger and asks about a pod.
func ask(t *testing.T, root, pod string) *report.Evidence {
	t.Helper()
	h, standing, err := facts.ReadHistory(t.Context(), os.DirFS(root), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return report.About("pod "+pod, h, h.OfPod(pod), standing)
}

func text(t *testing.T, d *report.Evidence, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Write(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFunctionInQuarantineIsNotHeld(t *testing.T) {
	one := &facts.PastTenancy{Node: "n1", Quarantined: "it does not answer"}
	d := report.About("pod t1/p", &facts.History{Tenancies: []*facts.PastTenancy{one}}, []*facts.PastTenancy{one}, facts.Verification{Sound: true})
	got, _, _ := strings.Cut(text(t, d, "text"), "\n")
	if want := "pod t1/p: 1 tenancy on node n1, 0 held now, 1 in quarantine"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// quarantined writes the ledger of a node whose GPU went into quarantine after its tenant. A first order to clear it failed.
func quarantined(t *testing.T) string {
	t.Helper()
	root, add := newLedger(t)
	c, d := &ledger.Claim{UID: "uid", Namespace: "t1", Name: "c"}, []ledger.Device{{Address: gpu}}
	add(ledger.Event{Type: ledger.Prepare, Claim: c, Pods: []ledger.Pod{{UID: "pod", Name: "p"}}, Devices: d})
	add(ledger.Event{Type: ledger.Quarantine, Claim: c, Devices: d, Reason: "it does not answer", Result: ledger.Failed})
	add(ledger.Event{Type: ledger.Clear, Claim: c, Devices: d, Reason: "ticket 1", By: &ledger.Operator{Sudo: "alice"}})
	add(ledger.Event{Type: ledger.Quarantine, Claim: c, Devices: d, Reason: "BAR 2 differs", Result: ledger.Failed})
	add(ledger.Event{Type: ledger.Clear, Claim: c, Devices: d, Reason: "ticket <2>", By: &ledger.Operator{Sudo: "bob"}})
	add(ledger.Event{Type: ledger.Release, Claim: c, Devices: d})
	add(ledger.Event{Type: ledger.Unprepare, Claim: c, Devices: d})
	return root
}

// TestQuarantinesInTheEvidence: each order to end a quarantine is told, and which one did.
func TestQuarantinesInTheEvidence(t *testing.T) {
	d := ask(t, quarantined(t), "t1/p")
	got := text(t, d, "text")
	want := `
  2026-11-22 08:02:00Z  quarantined  it does not answer
  2026-11-22 08:03:00Z  clear order  by uid 0, alice by sudo: ticket 1
  2026-11-22 08:04:00Z  failed       BAR 2 differs
  2026-11-22 08:05:00Z  clear order  by uid 0, bob by sudo: ticket <2>
  2026-11-22 08:06:00Z  cleared      the quarantine ended
  2026-11-22 08:07:00Z  given back
`
	if !strings.Contains(got, want) {
		t.Errorf("got:\n%s\nwant in it:%s", got, want)
	}
	page := text(t, d, "html")
	for _, words := range []string{
		"to 2026-11-22 08:06:00: it does not answer", "ticket 1; it failed: BAR 2 differs", "bob by sudo: ticket &lt;2&gt;",
	} {
		if !strings.Contains(page, words) {
			t.Errorf("the page lacks %q", words)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// TestBundleOfAnEarlierVersionVerifies: those have no quarantines. What a bundle shows of them comes from its events.
func TestBundleOfAnEarlierVersionVerifies(t *testing.T) {
	root := quarantined(t)
	b, err := report.NewBundle(os.DirFS(root), ask(t, root, "t1/p"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, claimed := range map[string][]facts.PastQuarantine{"as it was made": b.Tenancies[0].Quarantines, "without quarantines": nil, "with a forged one": {{Reason: "forged"}}} {
		v, err := report.VerifyBundle(changedBundle(t, data, func(b *report.Bundle) { b.Tenancies[0].Quarantines = claimed }), "")
		if err != nil {
			t.Errorf("%s: got %v, want it verified", name, err)
			continue
		}
		if all := v.Bundle.Tenancies[0].Quarantines; len(all) != 1 || all[0].Reason != "it does not answer" || len(all[0].Orders) != 2 {
			t.Errorf("%s: got the quarantines %+v, want the one of the events, with two orders", name, all)
		}
	}
}

func TestPodsEvidence(t *testing.T) {
	d := ask(t, node(t), "t2/p")
	got := text(t, d, "text")
	for _, want := range []string{
		"pod t2/p: 2 tenancies on node n1, 2 held now, near 1 tenancy of another tenant\n",
		"0000:3b:00.0  claim t2/c (uid uid-t2) for pod t2/p\n",
		"before       reset 2026-11-22 08:04:00Z by flr in 120 ms, registers as before; memory not checked (event 3)\n",
		"taken        isolated; IOMMU group 15 of 1 function; below 0000:3a:00.0; notes ATSEnabled\n",
		"in a VM      sandbox s-t2, VMM pid 42 (start 7)\n",
		"before       the ledger has no earlier tenant of this function\n",
		"0000:5e:10.2 (claim t3/c) shares one PF with 0000:5e:10.0\n",
		`refused      claim t2/c: evil \x1b[31m <script>`,
		"Ledger: 10 events, chain, tree and signatures are sound\n",
		"no checkpoint from off the node was compared with",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the text lacks %q", want)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("an escape character gets through")
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestMachinesAndBrowsersReadIt(t *testing.T) {
	d := ask(t, node(t), "t2/p")
	var doc struct {
		Tenancies []struct {
			Device struct{ Address string }
			Claim  struct{ Namespace string }
			To     *time.Time
		}
		Neighbors []struct{ Relation string } `json:"neighbours"`
		Ledger    struct{ Sound bool }
	}
	if err := json.Unmarshal([]byte(text(t, d, "json")), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Tenancies) != 2 || doc.Tenancies[0].Device.Address != "0000:3b:00.0" || doc.Tenancies[0].To != nil || len(doc.Neighbors) != 1 || !doc.Ledger.Sound {
		t.Errorf("the JSON says %+v", doc)
	}
	page := text(t, d, "html")
	for _, want := range []string{`>pod t2/p</h1>`, "0000:3b:00.0", "&lt;script&gt;alert(1)", "default-src &#39;none&#39;", `class="stay"`, `class="reset"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"<script", "http://", "https://", "\x1b"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

// TestBundleProvesItself, and any change of it is found.
func TestBundleProvesItself(t *testing.T) {
	root := node(t)
	d := ask(t, root, "t1/p")
	b, err := report.NewBundle(os.DirFS(root), d)
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v, err := report.VerifyBundle(data, d.Ledger.Key)
	if err != nil || !v.Pinned || len(v.Bundle.Proofs) != 5 || len(v.Bundle.Tenancies) != 1 || !v.Bundle.Tenancies[0].After.Proven() {
		t.Fatalf("%v, %+v", err, v)
	}
	if _, err := report.VerifyBundle(data, ""); err != nil {
		t.Errorf("without the key: %v", err)
	}
	other := ask(t, node(t), "t1/p")
	if _, err := report.VerifyBundle(data, other.Ledger.Key); err == nil {
		t.Error("another node's key verifies it")
	}
	for what, change := range map[string]func(*report.Bundle){
		"an event's word":      func(b *report.Bundle) { b.Proofs[3].Event = strings.Replace(b.Proofs[3].Event, "120", "121", 1) },
		"an event is left out": func(b *report.Bundle) { b.Proofs = append(b.Proofs[:3], b.Proofs[4:]...) },
		"events change places": func(b *report.Bundle) { b.Proofs[0], b.Proofs[1] = b.Proofs[1], b.Proofs[0] },
		"the tenant":           func(b *report.Bundle) { b.Tenancies[0].Claim.Namespace = "t9" },
		"a hash":               func(b *report.Bundle) { b.Proofs[0].Hashes[0][0] ^= 1 },
		"the checkpoint": func(b *report.Bundle) {
			b.Proofs[0].Checkpoint = strings.Replace(b.Proofs[0].Checkpoint, "n1", "n2", 1)
		},
		"no events": func(b *report.Bundle) { b.Proofs = nil },
		"no proof":  func(b *report.Bundle) { b.Proofs[0] = nil },
	} {
		if _, err := report.VerifyBundle(changedBundle(t, data, change), ""); err == nil {
			t.Errorf("not found: %s", what)
		}
	}
}

// TestBundleTellsWhoWasNearAndNotWhatWasBefore: neighbors are proven as the tenancies are. Of what was before, events
// that are not in it would speak.
func TestBundleTellsWhoWasNearAndNotWhatWasBefore(t *testing.T) {
	root := node(t)
	d := ask(t, root, "t3/p")
	b, err := report.NewBundle(os.DirFS(root), d)
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v, err := report.VerifyBundle(data, d.Ledger.Key)
	if err != nil {
		t.Fatal(err)
	}
	got := text(t, v.Document(), "text")
	for _, want := range []string{
		"pod t3/p: 1 tenancy on node n1, 1 held now, near 2 tenancies of other tenants\n",
		"before       this bundle has no earlier events: ask the ledger\n",
		"0000:5e:10.0 (claim t2/c) shares one PF with 0000:5e:10.2\n",
		"0000:3b:00.0 (claim t2/c) shares one node with 0000:5e:10.2\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the text lacks %q", want)
		}
	}
	if strings.Contains(got, "earlier tenant") {
		t.Error("it speaks of an earlier tenant")
	}
	if t.Failed() {
		t.Log(got)
	}
	for what, change := range map[string]func(*report.Bundle){
		"another relation":   func(b *report.Bundle) { b.Neighbors[0].Relation = facts.SameNode },
		"another tenant":     func(b *report.Bundle) { b.Neighbors[0].Other.Claim.Name = "other" },
		"one twice":          func(b *report.Bundle) { b.Neighbors = append(b.Neighbors, b.Neighbors[1]) },
		"none of a neighbor": func(b *report.Bundle) { b.Neighbors[0].Other = nil },
	} {
		if _, err := report.VerifyBundle(changedBundle(t, data, change), ""); err == nil {
			t.Errorf("not found: %s", what)
		}
	}
}

// TestBundleHoldsTheNearest, and says how many more there were.
func TestBundleHoldsTheNearest(t *testing.T) {
	root := t.TempDir()
	w, err := writer.Open(t.Context(), writer.Config{Dir: root, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	prepare := func(tenant string, devices ...ledger.Device) {
		t.Helper()
		c := &ledger.Claim{UID: "uid-" + tenant, Namespace: tenant, Name: "c"}
		if _, err := w.Append(t.Context(), ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Claim: c, Pods: []ledger.Pod{{Name: "p"}}, Devices: devices}); err != nil {
			t.Fatal(err)
		}
	}
	prepare("t1", ledger.Device{Address: vf0, PF: &pf})
	for bus := range 13 {
		var far []ledger.Device
		for slot := range 40 {
			far = append(far, ledger.Device{Address: pci.Address{Bus: uint8(0x80 + bus), Device: uint8(slot % 32), Function: uint8(slot / 32)}})
		}
		prepare(fmt.Sprintf("far%d", bus), far...)
	}
	prepare("t3", ledger.Device{Address: vf1, PF: &pf})
	d := ask(t, root, "t1/p")
	b, err := report.NewBundle(os.DirFS(root), d)
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v, err := report.VerifyBundle(data, d.Ledger.Key)
	if err != nil {
		t.Fatal(err)
	}
	if near := v.Bundle.Neighbors; len(near) != 500 || near[0].Other.Claim.Namespace != "t3" || v.Bundle.NeighborsLeftOut != 21 || v.Unlisted != 0 {
		t.Errorf("%d neighbors, %d left out, %d unlisted", len(near), v.Bundle.NeighborsLeftOut, v.Unlisted)
	}
	if got := text(t, v.Document(), "text"); !strings.Contains(got, "21 more tenancies of others, farther than these") {
		t.Error("it does not say that there were more")
	}
}

// TestBundleThatNobodyReadsIsNotWritten: a verifier refuses a bundle of more than 64 MiB.
func TestBundleThatNobodyReadsIsNotWritten(t *testing.T) {
	b := &report.Bundle{Question: strings.Repeat("x", 64<<20)}
	if data, err := b.Encode(); err == nil || !strings.Contains(err.Error(), "at most 64 MiB: ask about less") {
		t.Errorf("got %d bytes, %v; want an error that says what to do", len(data), err)
	}
}

// TestBundleSaysWhatItDoesNotList: of a claim with two functions one was asked for.
func TestBundleSaysWhatItDoesNotList(t *testing.T) {
	root := node(t)
	h, standing, err := facts.ReadHistory(t.Context(), os.DirFS(root), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := report.NewBundle(os.DirFS(root), report.About("function 0000:5e:10.0", h, h.OfDevice(vf0), standing))
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v, err := report.VerifyBundle(data, "")
	if err != nil || len(v.Bundle.Tenancies) != 1 || v.Unlisted != 1 {
		t.Fatalf("%v, %+v", err, v)
	}
	if got := text(t, v.Document(), "text"); !strings.Contains(got, "had 1 more function that the bundle does not list") {
		t.Error(got)
	}
}

func changedBundle(t *testing.T, data []byte, change func(*report.Bundle)) []byte {
	t.Helper()
	var b report.Bundle
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	change(&b)
	changed, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// TestLedgerThatIsNotSound is answered from, and the answer says so.
func TestLedgerThatIsNotSound(t *testing.T) {
	root := node(t)
	segments, err := filepath.Glob(filepath.Join(root, "0*.jsonl"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("no segment: %v", err)
	}
	data, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(segments[0], bytes.Replace(data, []byte(`"ms":120`), []byte(`"ms":999`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	d := ask(t, root, "t1/p")
	if d.Ledger.Sound || len(d.Ledger.Problems) == 0 || len(d.Tenancies) != 1 {
		t.Errorf("%+v", d.Ledger)
	}
	if got := text(t, d, "text"); !strings.Contains(got, "NOT sound") {
		t.Errorf("the text:\n%s", got)
	}
	if got := text(t, ask(t, root, "t9/other"), "text"); !strings.Contains(got, "pod t9/other: what could be read of the ledger knows of no function\n") {
		t.Errorf("of a pod that is not in it:\n%s", got)
	}
	if _, err := report.NewBundle(os.DirFS(root), d); err == nil {
		t.Error("a bundle is made of it")
	}
}

func FuzzVerifyBundle(f *testing.F) {
	f.Add([]byte(`{"type":"https://kata-vfio.dev/device-tenancy/v1","proofs":[{"event":"{}"}]}`))
	f.Add([]byte(`{"type":"https://kata-vfio.dev/device-tenancy/v1","tenancies":[null],"proofs":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, err := report.VerifyBundle(data, ""); err == nil {
			t.Errorf("made-up bundle is believed: %+v", v)
		}
	})
}

package facts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func at(bus, dev, fn uint8) pci.Address { return pci.Address{Bus: bus, Device: dev, Function: fn} }

// book writes a ledger, an event a minute.
type book struct {
	h      facts.History
	events []*ledger.Event
}

var start = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)

func minute(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }

func (b *book) add(e ledger.Event) {
	e.Version, e.Seq, e.Time, e.Node = ledger.Version, int64(len(b.events)), minute(len(b.events)), "n1"
	if e.Result == "" {
		e.Result = ledger.OK
	}
	b.events = append(b.events, &e)
	b.h.Add(&e)
}

func (b *book) skip() { b.add(ledger.Event{Type: ledger.Start}) }

func claimOf(tenant, name string) *ledger.Claim {
	return &ledger.Claim{UID: tenant + "-" + name, Namespace: tenant, Name: name}
}

func (b *book) prepare(c *ledger.Claim, devices ...ledger.Device) {
	b.add(ledger.Event{Type: ledger.Prepare, Claim: c, Pods: []ledger.Pod{{UID: "pod-" + c.UID, Name: "p-" + c.Name}}, Devices: devices})
}

func (b *book) open(c *ledger.Claim, sandbox string, devices ...ledger.Device) {
	b.add(ledger.Event{Type: ledger.Open, Claim: c, VM: &ledger.VM{Sandbox: sandbox}, Devices: devices})
}

func (b *book) close(c *ledger.Claim, sandbox string, devices ...ledger.Device) {
	b.add(ledger.Event{Type: ledger.Close, Claim: c, VM: &ledger.VM{Sandbox: sandbox}, Devices: devices})
}

func (b *book) reset(c *ledger.Claim, ok bool, devices ...ledger.Device) {
	e := ledger.Event{Type: ledger.Reset, Claim: c, Devices: devices, Reset: &ledger.ResetProof{Method: isolation.FLR, OK: ok, Match: ok}}
	for _, d := range devices {
		e.Reset.Set = append(e.Reset.Set, d.Address)
	}
	if !ok {
		e.Result, e.Reason = ledger.Failed, "it does not answer"
	}
	b.add(e)
}

func (b *book) unprepare(c *ledger.Claim, codes ...string) {
	b.add(ledger.Event{Type: ledger.Unprepare, Claim: c, Codes: codes})
}

func gpu() ledger.Device {
	return ledger.Device{Address: at(0x3b, 0, 0), Upstream: []pci.Address{at(0x3a, 0, 0)}}
}

func vf(index uint8) ledger.Device {
	return ledger.Device{Address: at(0x5e, 0x10, index), PF: new(at(0x5e, 0, 0)), Upstream: []pci.Address{at(0x5d, 0, 0)}}
}

// tenancy is one that ran its whole course.
func (b *book) tenancy(c *ledger.Claim, d ledger.Device) {
	b.prepare(c, d)
	b.open(c, "s-"+c.Name, d)
	b.close(c, "s-"+c.Name, d)
	b.reset(c, true, d)
	b.unprepare(c)
}

// TestBindingWithoutAClaimIsNoTenancy: the claims of its device leave no doubt, and its reset is the proof for the first.
func TestBindingWithoutAClaimIsNoTenancy(t *testing.T) {
	var b book
	warm := &ledger.Claim{UID: ledger.BindingUID + "0000-3b-00-0"}
	b.prepare(warm, gpu())
	b.reset(warm, true, gpu())
	b.tenancy(claimOf("t1", "a"), gpu())
	b.tenancy(claimOf("t2", "b"), gpu())
	b.unprepare(warm)
	got := b.h.OfDevice(gpu().Address)
	if len(got) != 2 || !got[0].First || !got[0].Before.Proven() || got[0].Before.Event != 1 || got[1].Before != got[0].After {
		t.Fatalf("tenancies %+v, want those of the claims, each after a proof", got)
	}
	for _, tenancy := range got {
		if len(tenancy.Doubts) > 0 {
			t.Errorf("doubts %q", tenancy.Doubts)
		}
	}
}

func TestOneAfterTheOther(t *testing.T) {
	var b book
	a, c := claimOf("t1", "a"), claimOf("t2", "b")
	b.tenancy(a, gpu())
	b.skip()
	b.prepare(c, gpu())
	b.open(c, "s-b", gpu())
	b.add(ledger.Event{Type: ledger.Open, Claim: c, VM: &ledger.VM{Sandbox: "s-b", PID: 4711}, Devices: []ledger.Device{gpu()}})

	got := b.h.OfDevice(gpu().Address)
	if len(got) != 2 {
		t.Fatalf("%d tenancies, want 2", len(got))
	}
	first, second := got[0], got[1]
	want := &facts.PastTenancy{
		Device: gpu(), Node: "n1", Claim: *a, Pods: []ledger.Pod{{UID: "pod-t1-a", Name: "p-a"}}, From: minute(0), To: new(minute(4)), First: true,
		Stays:  []facts.Stay{{VM: ledger.VM{Sandbox: "s-a"}, From: minute(1), To: new(minute(2))}},
		After:  &facts.Cleaning{Time: minute(3), Event: 3, Result: ledger.OK, Proof: *b.events[3].Reset},
		Events: []int64{0, 1, 2, 3, 4},
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("the first (-want +got):\n%s", diff)
	}
	if !first.After.Proven() || second.Before != first.After || second.First || second.To != nil {
		t.Errorf("the second is %+v", second)
	}
	if len(second.Stays) != 1 || second.Stays[0].VM.PID != 4711 || second.Stays[0].From != minute(7) || second.Stays[0].To != nil {
		t.Errorf("the second's stays are %+v", second.Stays)
	}
	for when, claim := range map[int]string{0: "a", 3: "a", 5: "", 6: "b", 600: "b"} {
		names := ""
		for _, t := range b.h.At(minute(when)) {
			names += t.Claim.Name
		}
		if names != claim {
			t.Errorf("at minute %d %q has it, want %q", when, names, claim)
		}
	}
	for which, want := range map[string]int{"t1/a": 1, "t1-a": 1, "a": 1, "t2/a": 0} {
		if n := len(b.h.OfClaim(which)); n != want {
			t.Errorf("claim %s has %d tenancies, want %d", which, n, want)
		}
	}
	for which, want := range map[string]int{"t1/p-a": 1, "pod-t1-a": 1, "p-a": 0} {
		if n := len(b.h.OfPod(which)); n != want {
			t.Errorf("pod %s has %d tenancies, want %d", which, n, want)
		}
	}
	if near := b.h.Neighbors([]*facts.PastTenancy{first}); len(near) > 0 {
		t.Errorf("who came after was not a neighbor: %+v", near)
	}
}

// TestSandboxThatIsMadeAnew is a second stay of the same tenancy, and a doubt
// where nothing was reset between them.
func TestSandboxThatIsMadeAnew(t *testing.T) {
	for _, clean := range []bool{true, false} {
		var b book
		c := claimOf("t1", "a")
		b.prepare(c, gpu())
		b.open(c, "s1", gpu())
		b.close(c, "s1", gpu())
		if clean {
			b.reset(c, true, gpu())
		}
		b.open(c, "s2", gpu())
		got := b.h.Tenancies[0]
		if len(got.Stays) != 2 || got.Stays[0].To == nil || got.Stays[1].To != nil {
			t.Errorf("clean %t: the stays are %+v", clean, got.Stays)
		}
		if doubted := strings.Contains(strings.Join(got.Doubts, ";"), "without a reset"); doubted == clean {
			t.Errorf("clean %t: the doubts are %q", clean, got.Doubts)
		}
	}
}

func TestHistoryOfFailedAssignments(t *testing.T) {
	var b book
	c, d := claimOf("t1", "a"), claimOf("t1", "b")
	b.prepare(c, gpu(), vf(0))
	b.open(c, "s1", gpu(), vf(0))
	b.reset(c, false, gpu())
	b.add(ledger.Event{Type: ledger.Quarantine, Claim: c, Devices: []ledger.Device{gpu()}, Reason: "it does not answer", Result: ledger.Failed})
	b.add(ledger.Event{Type: ledger.Unprepare, Claim: c, Devices: []ledger.Device{vf(0)}, Codes: []string{ledger.CodeUnproven}, Late: true})
	b.add(ledger.Event{Type: ledger.Refusal, Claim: d, Reason: "in use", Result: ledger.Refused})

	bad, unproven := b.h.Tenancies[0], b.h.Tenancies[1]
	if bad.To != nil || bad.Quarantined != "it does not answer" || bad.After.Proven() {
		t.Errorf("the GPU's is %+v", bad)
	}
	if unproven.To == nil || !unproven.Unproven || unproven.After != nil || len(unproven.Doubts) != 1 {
		t.Errorf("the VF's is %+v", unproven)
	}
	if len(b.h.Refusals) != 1 || b.h.Refusals[0].Reason != "in use" {
		t.Errorf("the refusals are %+v", b.h.Refusals)
	}
	b.add(ledger.Event{Type: ledger.Release, Claim: c, Devices: []ledger.Device{gpu()}})
	b.prepare(d, gpu())
	if last := b.h.Tenancies[2]; bad.Quarantined != "" || len(last.Doubts) != 1 {
		t.Errorf("after its release the GPU's is %+v, the next %+v; it should doubt that the first ended", bad, last)
	}
}

// TestHistoryHasQuarantinesThatEnded: who looks for a device that fails again and again finds each quarantine, each order to end it, and
// whether that worked.
func TestHistoryHasQuarantinesThatEnded(t *testing.T) {
	var b book
	c, d := claimOf("t1", "a"), []ledger.Device{gpu()}
	alice := &ledger.Operator{Sudo: "alice"}
	fails := func(reason string) {
		b.add(ledger.Event{Type: ledger.Quarantine, Claim: c, Devices: d, Reason: reason, Result: ledger.Failed})
	}
	b.prepare(c, gpu())
	b.open(c, "s1", gpu())
	fails("it does not answer")
	b.add(ledger.Event{Type: ledger.Clear, Claim: c, Devices: d, Reason: "ticket 1", By: alice})
	fails("BAR 2 differs")
	if got := b.h.Tenancies[0]; got.Quarantined != "BAR 2 differs" || got.Quarantines[0].To != nil {
		t.Errorf("after a failed order: got %+v, want an open quarantine by the last reason", got)
	}
	b.add(ledger.Event{Type: ledger.Clear, Claim: c, Devices: d, Reason: "ticket 2", By: alice, Codes: []string{ledger.CodeUnproven}})
	b.add(ledger.Event{Type: ledger.Release, Claim: c, Devices: d})
	fails("it fell off the bus")
	b.add(ledger.Event{Type: ledger.Release, Claim: c, Devices: d})
	b.add(ledger.Event{Type: ledger.Clear, Claim: c, Devices: d, Reason: "too late", By: alice})
	b.add(ledger.Event{Type: ledger.Unprepare, Claim: c, Devices: d})

	got := b.h.Tenancies[0]
	var words []string
	for _, q := range got.Quarantines {
		words = append(words, fmt.Sprintf("%s, ended %t", q.Reason, q.To != nil))
		for i := range q.Orders {
			words = append(words, q.Orders[i].Words()+", failed: "+q.Orders[i].Failed)
		}
	}
	want := []string{
		"it does not answer, ended true",
		"by uid 0, alice by sudo: ticket 1, failed: BAR 2 differs",
		"by uid 0, alice by sudo: ticket 2 (without proof), failed: ",
		"it fell off the bus, ended true",
	}
	if diff := cmp.Diff(want, words); diff != "" {
		t.Errorf("quarantines (-want +got):\n%s", diff)
	}
	if got.Quarantined != "" || len(got.Doubts) != 1 {
		t.Errorf("got the quarantine %q and the doubts %q, want none, and one of the late order", got.Quarantined, got.Doubts)
	}
}

func TestNeighbors(t *testing.T) {
	var b book
	mine, sibling, far, later := claimOf("t1", "a"), claimOf("t2", "b"), claimOf("t3", "c"), claimOf("t4", "d")
	b.prepare(mine, vf(0))
	b.prepare(sibling, vf(1))
	b.prepare(far, gpu())
	b.unprepare(sibling)
	b.unprepare(mine)
	b.prepare(later, vf(2))
	near := b.h.Neighbors(b.h.OfClaim("t1/a"))
	var got []string
	for _, n := range near {
		got = append(got, n.Other.Claim.Name+" "+string(n.Relation)+" "+n.From.Format("15:04")+" "+n.To.Format("15:04"))
	}
	if want := []string{"b one PF 08:01 08:03", "c one node 08:02 08:04"}; !slices.Equal(got, want) {
		t.Errorf("neighbors %q, want %q", got, want)
	}
}

// TestFunctionInQuarantineIsNearUntilItsLastVM: quarantine has no end in the ledger, but nobody's VM has the function.
func TestFunctionInQuarantineIsNearUntilItsLastVM(t *testing.T) {
	var b book
	bad, beside, later := claimOf("t1", "a"), claimOf("t2", "b"), claimOf("t3", "c")
	b.prepare(bad, gpu())
	b.open(bad, "s1", gpu())
	b.prepare(beside, vf(0))
	b.close(bad, "s1", gpu())
	b.add(ledger.Event{Type: ledger.Quarantine, Claim: bad, Devices: []ledger.Device{gpu()}, Reason: "it does not answer", Result: ledger.Failed})
	b.prepare(later, vf(1))
	near := b.h.Neighbors(b.h.OfClaim("t1/a"))
	if len(near) != 1 || near[0].Other.Claim.Name != "b" {
		t.Fatalf("got neighbors %+v, want claim b only", near)
	}
	if got, want := near[0].To, b.h.OfClaim("t1/a")[0].Stays[0].To; got == nil || !got.Equal(*want) {
		t.Errorf("got neighbor until %v, want until the VM's end, %v", got, want)
	}
}

func TestRelations(t *testing.T) {
	deep := ledger.Device{Address: at(0x40, 0, 0), Switch: new(at(0x3c, 0, 0)), Upstream: []pci.Address{at(0x3a, 0, 0), at(0x3b, 0, 0), at(0x3c, 0, 0)}}
	for _, c := range []struct {
		other ledger.Device
		want  facts.Relation
	}{
		{ledger.Device{Address: at(0x40, 0, 0)}, facts.SameFunction},
		{ledger.Device{Address: at(0x50, 0, 0), GroupMembers: []pci.Address{at(0x40, 0, 0)}}, facts.SameGroup},
		{ledger.Device{Address: at(0x40, 1, 0), PF: new(at(0x40, 0, 0))}, facts.SamePF},
		{ledger.Device{Address: at(0x40, 0, 1)}, facts.SameSlot},
		{ledger.Device{Address: at(0x40, 1, 0), FirstFunction: new(at(0x40, 0, 0))}, facts.SameSlot}, // the ninth function, by ARI
		{ledger.Device{Address: at(0x40, 1, 0)}, facts.SameNode},
		{ledger.Device{Address: at(0x41, 0, 0), Switch: new(at(0x3c, 0, 0))}, facts.SameSwitch},
		{ledger.Device{Address: at(0x41, 0, 0), Switch: new(at(0x3b, 0, 0))}, facts.SameSwitch},
		{ledger.Device{Address: at(0x41, 0, 0), Upstream: []pci.Address{at(0x3a, 0, 0)}}, facts.SamePort},
		{vf(0), facts.SameNode},
	} {
		var b book
		b.prepare(claimOf("t1", "a"), deep)
		b.prepare(claimOf("t2", "b"), c.other)
		near := b.h.Neighbors(b.h.OfClaim("t1/a"))
		if len(near) != 1 || near[0].Relation != c.want {
			t.Errorf("%s: %+v, want %s", c.other.Address, near, c.want)
		}
	}
}

// TestStageIsBeforeTheNextTenant: a stage belongs to the tenancy after it, the last one counts, and a stage is used once.
func TestStageIsBeforeTheNextTenant(t *testing.T) {
	var b book
	first, stage, second, third := claimOf("a", "one"), claimOf("stages", "s"), claimOf("b", "two"), claimOf("c", "three")
	sanitized := func(verdict string, result ledger.Result) {
		b.add(ledger.Event{
			Type: ledger.Sanitize, Result: result, Claim: stage, Devices: []ledger.Device{{Address: gpu().Address}},
			Sanitize: &ledger.Sanitization{Profile: "memory", Image: "sha256:01", Verdict: verdict, After: first},
		})
	}
	b.tenancy(first, gpu())
	b.tenancy(stage, gpu())
	sanitized("Interrupted", ledger.Failed)
	sanitized("Clean", ledger.OK)
	b.tenancy(second, gpu())
	b.tenancy(third, gpu())
	for claim, want := range map[*ledger.Claim]string{first: "", second: "Clean by memory (sha256:01)", third: ""} {
		got := ""
		if s := b.h.OfClaim(claim.UID)[0].Sanitized; s != nil {
			got = s.Words()
		}
		if got != want {
			t.Errorf("sanitized before claim %s: got %q, want %q", claim.Name, got, want)
		}
	}
}

// TestTenancyHasWhatWasSet: the partition of a GPU, as it was set last.
func TestTenancyHasWhatWasSet(t *testing.T) {
	var b book
	c := claimOf("t1", "train")
	gpu, mate := ledger.Device{Address: at(0x86, 0, 0)}, ledger.Device{Address: at(0x87, 0, 0)}
	b.prepare(c, gpu, mate)
	for _, value := range []string{"2 (modules 1, 3)", "3 (modules 1, 3)"} {
		set := gpu
		set.Provided = []ledger.Provided{{By: "fabric", Name: "partition", Value: value}}
		b.add(ledger.Event{Type: ledger.Policy, Claim: c, Devices: []ledger.Device{set}})
	}
	for i, want := range []string{"partition 3 (modules 1, 3)", ""} {
		if got := b.h.Tenancies[i].ProvidedWords(); got != want {
			t.Errorf("%s: got %q, want %q", b.h.Tenancies[i].Device.Address, got, want)
		}
	}
}

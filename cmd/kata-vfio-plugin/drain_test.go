package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// TestDrainDryRunListsDevices: a dry run names the whole group, who has it and where each
// function goes, and touches nothing.
func TestDrainDryRunListsDevices(t *testing.T) {
	root := newRoot(t)
	seed(t, root)
	inBoot1(t, root)
	before := tree(t, root)
	tests := map[string]struct {
		args string
		code int
		want []string
	}{
		"free":           {"0000:50:00.0", 0, []string{"0000:50:00.0", "keep it from new claims"}},
		"in use":         {"gpu-0000-3b-00-0", 0, []string{"0000:3b:00.0  gpu-0000-3b-00-0", "nvidia", "team-a/train (" + oneUID1 + ") has it"}},
		"quarantined":    {"0000:62:00.1", 0, []string{"0000:62:00.0  gpu-0000-62-00-0", "0000:62:00.1", "snd_hda_intel", "quarantined since claim team-a/three"}},
		"a PF":           {"0000:21:00.0", 0, []string{"0000:21:02.0", "0000:21:02.1"}},
		"json":           {"0000:3b:00.0 -o json", 0, []string{`"state": "planned"`, `"uid": "` + oneUID1, `"home": "nvidia"`}},
		"not there":      {"0000:77:00.0", 2, []string{"no PCI function 0000:77:00.0"}},
		"no device":      {"gpu", 2, []string{"want an address"}},
		"nothing at all": {"", 2, []string{"want one argument"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, append([]string{"drain", "--dry-run", "--root", root}, strings.Fields(tt.args)...)...)
			for _, want := range tt.want {
				if !strings.Contains(got.stdout+got.stderr, want) {
					t.Errorf("lacks %q:\n%s%s", want, got.stdout, got.stderr)
				}
			}
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d", got.code, tt.code)
			}
		})
	}
	if got := invoke(t, "drain", "--root", root, "0000:3b:00.0", "--reason", " "); got.code != 2 || !strings.Contains(got.stderr, "--reason is empty") {
		t.Errorf("without a reason: %+v", got)
	}
	sameTree(t, before, tree(t, root))
}

// inBoot1 makes the node's boot the one that seed's records are of.
func inBoot1(t *testing.T, root string) {
	t.Helper()
	file := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte("boot-1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func sameTree(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, content := range after {
		if was, there := before[name]; !there || was != content {
			t.Errorf("%s was changed", name)
		}
	}
	for name := range before {
		if _, there := after[name]; !there {
			t.Errorf("%s was removed", name)
		}
	}
}

// TestUndrainNamesWhatIsLeft, where another drain covers the device too.
func TestUndrainNamesWhatIsLeft(t *testing.T) {
	pf, vf := pci.Address{Bus: 0x21}, pci.Address{Bus: 0x21, Device: 2}
	for want, v := range map[string]undrainedView{
		"0000:21:02.0 is undrained, but 0000:21:02.0 stays drained with 0000:21:00.0: `kata-vfio-plugin undrain 0000:21:00.0`.\n": {vf, true, &pf},
		"0000:21:00.0 is in use again: the plugin offers it as before.\n":                                                         {pf, true, nil},
		"0000:21:02.0 was not drained.\n": {vf, false, nil},
	} {
		var got strings.Builder
		if err := printUndrained(&got, "table", vf, v); err != nil || got.String() != want {
			t.Errorf("%q, %v; want %q", &got, err, want)
		}
	}
}

// TestDrainOfWhatIsQuarantinedNamesTheCommand that explains it, as it can be run.
func TestDrainOfWhatIsQuarantinedNamesTheCommand(t *testing.T) {
	root := newRoot(t)
	seed(t, root)
	state := &maintain.Draining{Drain: journal.Drain{Address: pci.Address{Bus: 0x62}}, Quarantined: []plan.Ref{{UID: oneUID2}}}
	_, words, _ := strings.Cut(undone(state).Error(), "`kata-vfio-plugin ")
	words, _, _ = strings.Cut(words, "`")
	if got := invoke(t, append(strings.Fields(words), "--root", root)...); got.code != 0 || !strings.Contains(got.stdout, "quarantined since") {
		t.Errorf("%s: %+v", words, got)
	}
}

// TestStatusOfADrain: since when, who asked for it, why, and which claim still has the device.
func TestStatusOfADrain(t *testing.T) {
	root := newRoot(t)
	seed(t, root)
	store, err := journal.Open(filepath.Join(root, "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	mark := journal.Drain{Address: pci.Address{Bus: 0x3b}, Reason: "fan", By: "uid 0, alice by sudo", Since: "2026-11-22T10:00:00Z", Evict: true}
	if err := store.MarkDrained(t.Context(), mark); err != nil {
		t.Fatal(err)
	}
	if err := store.MarkDrained(t.Context(), journal.Drain{Address: pci.Address{Bus: 0x62}, Reason: "cable"}); err != nil {
		t.Fatal(err)
	}
	wantEnd := func(holder string) {
		t.Helper()
		want := "\n0000:3b:00.0 is drained since 2026-11-22T10:00:00Z (uid 0, alice by sudo), pods that have it are evicted: fan; " + holder + "\n" +
			"\n0000:62:00.0 is drained since - (-): cable; quarantined since claim " + oneUID2 + "\n"
		if got := invoke(t, "status", "--root", root); !strings.HasSuffix(got.stdout, want) || got.code != 0 {
			t.Errorf("%+v, want at its end\n%s", got, want)
		}
	}
	wantEnd("claim " + oneUID1 + " had it before the node's restart")
	inBoot1(t, root)
	wantEnd("claim " + oneUID1 + " has it still")
	if got := invoke(t, "status", "--root", root, "-o", "yaml"); !strings.Contains(got.stdout, "drained:\n- address: 0000:3b:00.0\n") {
		t.Errorf("yaml: %s", got.stdout)
	}
	var gone strings.Builder
	if err := printDrains(&gone, &nodeStatus{drains: []journal.Drain{{Reason: "fan", Gone: true}}}); err != nil || !strings.Contains(gone.String(), "fan; it is gone, and another device has its address\n") {
		t.Errorf("got %q, %v; want that another device has the address", &gone, err)
	}
	claim := []string{"plan", "--root", root, "-f", "testdata/one-claim.yaml"}
	if got := invoke(t, claim...); got.code != exitRefused || !strings.Contains(got.stderr, "0000:3b:00.0 is being drained: fan") {
		t.Errorf("a plan of it: %+v", got)
	}
}

// TestInterruptedWaitSaysThatTheDrainStands: an operator who ends the wait has not undone the drain.
func TestInterruptedWaitSaysThatTheDrainStands(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	state := &maintain.Draining{Drain: journal.Drain{Address: pci.Address{Bus: 0x62}}, Holders: []plan.Ref{{UID: oneUID1}}}
	_, err := await(ctx, io.Discard, nil, state, time.Hour)
	if !errors.Is(err, context.Canceled) || !containsAll(err.Error(), []string{"0000:62:00.0 is drained", "interrupted", "the plugin completes the drain"}) {
		t.Errorf("got %v, want that the drain stands", err)
	}
	if err := interrupted(ctx, state, maintain.ErrNotDrained); !errors.Is(err, maintain.ErrNotDrained) || strings.Contains(err.Error(), "is drained, but") {
		t.Errorf("of a drain that was ended: %v", err)
	}
	if got, err := await(ctx, io.Discard, nil, &maintain.Draining{}, time.Hour); err != nil || !got.Done() {
		t.Errorf("of a drain that is done: %v", err)
	}
}

// TestQuarantinesAreListedAndExplained by the journal and the ledger, without a change.
func TestQuarantinesAreListedAndExplained(t *testing.T) {
	root := newRoot(t)
	if got := invoke(t, "quarantine", "list", "--root", root); got.stdout != "Nothing is quarantined.\n" || got.code != 0 {
		t.Errorf("of an idle node: %+v", got)
	}
	seed(t, root)
	before := tree(t, root)
	tests := map[string]struct {
		args string
		code int
		want []string
	}{
		"list":               {"list", 0, []string{"gpu-0000-62-00-0", "2026-11-20T10:00:00Z", "team-a/three", "not known", "input/output error"}},
		"list json":          {"list -o json", 0, []string{`"reason": "reset 0000:62:00.0`, `"noHistory"`}},
		"explain":            {"explain 0000:62:00.1", 0, []string{"the ledger has no events of this claim", "What to do", "clear 0000:62:00.0 --reason TEXT"}},
		"explain by a claim": {"explain " + oneUID2, 0, []string{"quarantined since"}},
		"explain another":    {"explain 0000:3b:00.0", 2, []string{"nothing of that name is quarantined"}},
		"clear, steps":       {"clear --dry-run " + oneUID2, 0, []string{"reset", "- -> nvidia "}},
		"clear, no reason":   {"clear " + oneUID2, 2, []string{"--reason is empty"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, append([]string{"quarantine", "--root", root}, strings.Fields(tt.args)...)...)
			for _, want := range tt.want {
				if !strings.Contains(got.stdout+got.stderr, want) {
					t.Errorf("lacks %q:\n%s%s", want, got.stdout, got.stderr)
				}
			}
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d", got.code, tt.code)
			}
		})
	}
	if got := invoke(t, "quarantine", "clear", "--root", root, "--dry-run", "--without-proof", oneUID2); strings.Contains(got.stdout, "  reset  ") {
		t.Errorf("a reset of what the node may be using since its restart:\n%s", got.stdout)
	}
	sameTree(t, before, tree(t, root))
}

// TestStepsOfAClearance are those that it takes, by what it is to do without.
func TestStepsOfAClearance(t *testing.T) {
	root := newRoot(t)
	vf, pf := pci.Address{Bus: 0x21, Device: 0x10}, pci.Address{Bus: 0x21}
	rec := &journal.Record{Kind: journal.Claim, State: journal.Quarantined, BootID: "boot-1", Plan: plan.Plan{
		Devices: []plan.Device{{
			Address: vf, Lease: &plan.Lease{Pool: "tenants", Plugin: "host-local"},
			Resets: []isolation.Reset{{Method: "flr", Set: []pci.Address{vf}}},
		}},
		Functions: []plan.Function{{
			Address: vf, PF: &pf, Original: plan.Binding{Driver: "igbvf"}, Target: plan.Binding{Driver: "vfio-pci", Override: "vfio-pci"},
			Endpoint: &plan.Binding{Driver: "igbvf", Override: "igbvf"},
		}},
	}}
	o := &options{}
	o.node.Root = root
	steps := func(withoutProof bool) string {
		var words []string
		for _, s := range o.clearSteps(rec, o.snapshot(t.Context()), withoutProof) {
			words = append(words, string(s.Operation)+" "+s.DriverBefore+">"+s.DriverAfter)
		}
		return strings.Join(words, ", ")
	}
	if got := steps(true); got != "returnAddress igbvf>igbvf" {
		t.Errorf("after a restart: %s", got)
	}
	inBoot1(t, root)
	const want = "reset vfio-pci>vfio-pci, unbind vfio-pci>, override >, probe >igbvf, returnAddress igbvf>igbvf"
	with, without := steps(false), steps(true)
	if !strings.HasSuffix(with, without) || without != want {
		t.Errorf("with a proof: %s\nwithout: %s", with, without)
	}
	rec.Plan.Functions[0].Original = rec.Plan.Functions[0].Target
	if got := steps(true); strings.Contains(got, "reset") {
		t.Errorf("no host driver gets it, and without a proof: %s", got)
	}
}

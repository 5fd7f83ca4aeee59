package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// TestQuarantineViewShowsUnknown: only what was measured before the tenant,
// and can be measured now, can be said to be as it was.
func TestQuarantineViewShowsUnknown(t *testing.T) {
	const nothing = "nothing that was recorded"
	gpu := pci.Address{Bus: 0x3b}
	tests := map[string]struct {
		change func(*journal.Record)
		reset  func(*ledger.ResetProof)
		root   func(string) string
		want   []string // after the last reset, and now
	}{
		"all as before":               {want: []string{nothing, nothing}},
		"nothing was measured":        {change: func(r *journal.Record) { r.Baseline = nil }, want: []string{"not known: its record has no", "not known: its record has no"}},
		"tried again after a restart": {change: func(r *journal.Record) { r.BootID = "boot-2" }, want: []string{"not known: the node was restarted", "not known: the node was restarted"}},
		"the reset left nothing":      {reset: func(r *ledger.ResetProof) { r.After = nil }, want: []string{"not known: the last reset left", nothing}},
		"no sysfs":                    {root: func(root string) string { return filepath.Join(root, "none") }, want: []string{nothing, "not known: "}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			fs, err := sysfs.Open(root)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = fs.Close() }()
			print, err := bind.Fingerprint(fs, gpu)
			if err != nil {
				t.Fatal(err)
			}
			rec := &journal.Record{State: journal.Quarantined, BootID: "boot-1", Baseline: []isolation.Fingerprint{print}, Plan: plan.Plan{
				Claim: plan.Ref{UID: oneUID1}, Functions: []plan.Function{{Address: gpu}},
			}}
			proof := &ledger.ResetProof{Method: "flr", Set: []pci.Address{gpu}, After: rec.Baseline}
			if tt.change != nil {
				tt.change(rec)
			}
			if tt.reset != nil {
				tt.reset(proof)
			}
			o := &options{}
			o.node.Root, o.node.StateDir = root, "state"
			w := writer.New(writer.Config{Dir: o.node.LedgerDir(), Node: "node-1", BootID: "boot-1"})
			claim := &ledger.Claim{UID: oneUID1}
			if _, err := w.Append(t.Context(), ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Claim: claim},
				ledger.Event{Type: ledger.Reset, Result: ledger.Failed, Claim: claim, Reset: proof}); err != nil {
				t.Fatal(err)
			}
			q := newQuarantine(t.Context(), o.history(t.Context(), oneUID1), rec, nil)
			if tt.root != nil {
				o.node.Root = tt.root(root)
			}
			o.lookNow(q)
			var text strings.Builder
			if err := printQuarantine(&text, "table", q); err != nil {
				t.Fatal(err)
			}
			for i, when := range []string{"after the last reset:\n  ", "as it is now:\n  "} {
				if !strings.Contains(text.String(), when+tt.want[i]) {
					t.Errorf("want %q behind %q:\n%s", tt.want[i], when, &text)
				}
			}
		})
	}
}

// TestTheLedgerIsReadOnce for all quarantines and stages: after that, their events come from memory.
func TestTheLedgerIsReadOnce(t *testing.T) {
	o := &options{}
	o.node.Root, o.node.StateDir = t.TempDir(), "state"
	w := writer.New(writer.Config{Dir: o.node.LedgerDir(), Node: "node-1", BootID: "boot-1"})
	for _, uid := range []string{oneUID1, "57a6e"} {
		claim := &ledger.Claim{UID: uid}
		if _, err := w.Append(t.Context(), ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Claim: claim},
			ledger.Event{Type: ledger.Reset, Result: ledger.Failed, Claim: claim, Reset: &ledger.ResetProof{Method: "flr"}},
			ledger.Event{Type: ledger.Sanitize, Result: ledger.Failed, Claim: claim, Sanitize: &ledger.Sanitization{Image: "sha256:12ab"}}); err != nil {
			t.Fatal(err)
		}
	}
	history := o.history(t.Context(), oneUID1, "57a6e")
	if err := os.RemoveAll(o.node.LedgerDir()); err != nil {
		t.Fatal(err)
	}
	rec := &journal.Record{State: journal.Quarantined, BootID: "boot-1", Plan: plan.Plan{Claim: plan.Ref{UID: oneUID1}}}
	if got := newQuarantine(t.Context(), history, rec, nil); got.tried() != "flr x1" {
		t.Errorf("tried %s (%s), want flr x1", got.tried(), got.NoHistory)
	}
	v := &sanitizingView{Failed: &journal.FailedStage{Stage: journal.Stage{Claim: journal.ClaimName{UID: "57a6e"}}}}
	if v.recall(t.Context(), history); v.Result == nil || v.Result.Image != "sha256:12ab" {
		t.Errorf("the stage has the result %+v (%s), want its image", v.Result, v.ResultUnknown)
	}
}

// TestNothingIsQuarantinedOnlyIfAllIsKnown: a user who may not read the journal is not told that nothing is quarantined.
func TestNothingIsQuarantinedOnlyIfAllIsKnown(t *testing.T) {
	for whole, want := range map[bool]string{
		true: "Nothing is quarantined.\n", false: "It is unknown what is quarantined: parts of the journal could not be read.\n",
	} {
		var out strings.Builder
		if err := printQuarantines(&out, "table", nil, nil, whole); err != nil || out.String() != want {
			t.Errorf("the whole journal was read: %t; got %q (%v), want %q", whole, out.String(), err, want)
		}
	}
}

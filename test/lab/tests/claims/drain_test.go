//go:build lab

package claims_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestDrain takes a VF out of use that a claim has and the config keeps bound: the claim keeps it, no other gets it, and
// when it ends the VF goes back to the driver that it came from; undrained it is bound again, and claimed.
func TestDrain(t *testing.T) {
	kernel.VFs(t, topology.PF0, "1")
	cfg := stage.Everything("vf")
	for i := range cfg.Devices {
		cfg.Devices[i].Policy = v1alpha1.PolicyBound
	}
	n := open(t, cfg)
	before := stage.Bindings(t)
	vf := topology.VF(topology.PF0, 0)
	home := kernel.Driver(t, vf)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := n.Preparer.Unprepare(ctx, "standing-"+stage.Address(t, vf).Label()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
			t.Errorf("at the end (-before +after):\n%s", diff)
		}
	})
	if err := n.Maintainer.BindByPolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
	req := stage.Request(t, "holder", vf)
	mustPrepare(t, n, req)
	by := ledger.Operator{Sudo: "alice"}
	state, err := n.Maintainer.Drain(t.Context(), journal.Drain{Address: stage.Address(t, topology.PF0), Reason: "cable"}, by)
	if err != nil || state.Done() || len(state.Holders) != 1 || !state.Has(stage.Address(t, vf)) {
		t.Fatalf("Drain = %+v, %v; want it held by the claim", state, err)
	}
	if _, err := n.Preparer.Prepare(t.Context(), req); err != nil {
		t.Errorf("the holder's repetition: %v", err)
	}
	_, err = n.Preparer.Prepare(t.Context(), stage.Request(t, "other", vf))
	if refused := asRefusal(t, err); !refused.Has(rule.Drained) {
		t.Errorf("another claim: %v", err)
	}
	mustUnprepare(t, n, "holder")
	states, err := n.Maintainer.FinishDrains(t.Context())
	if err != nil || len(states) != 1 || !states[0].Done() {
		t.Fatalf("FinishDrains = %+v, %v", states, err)
	}
	if got := kernel.Driver(t, vf); got != home {
		t.Errorf("%s is on %q, want %q", vf, got, home)
	}
	if _, was, err := n.Maintainer.Undrain(t.Context(), stage.Address(t, vf), "cable replaced", by); err != nil || !was {
		t.Fatalf("Undrain = %t, %v", was, err)
	}
	if got := kernel.Driver(t, vf); got != "vfio-pci" {
		t.Errorf("undrained, %s is on %q, want vfio-pci", vf, got)
	}
	mustPrepare(t, n, stage.Request(t, "other", vf))
	mustUnprepare(t, n, "other")
}

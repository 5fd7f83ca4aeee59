package node_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// TestPartitionOfAPreparedClaimIsMadeAgain when Fabric Manager has started again: that of the claim alone, and only if it is lost.
func TestPartitionOfAPreparedClaimIsMadeAgain(t *testing.T) {
	b := newBoard(t)
	if all, err := b.Reactivate(t.Context()); len(all) > 0 || err == nil {
		t.Errorf("Reactivate = %v, %v before Fabric Manager was asked; want an error", all, err)
	}
	b.ask(true, "")
	if _, err := b.Preparer.Prepare(t.Context(), pairOfGPUs()); err != nil {
		t.Fatal(err)
	}
	b.record("ended", journal.Cleaned, "5 (modules 5, 7)")
	for _, restarts := range []int{0, 1, 0} {
		if restarts > 0 {
			b.m.Restart(false)
		}
		if _, err := b.AskFabric(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, err := b.Reactivate(t.Context())
		if err != nil || len(all) != restarts || restarts > 0 && (all[0].Err != nil || all[0].Record.ID() != "claim") {
			t.Errorf("Reactivate = %+v, %v; want %d claims with their partitions", all, err, restarts)
		}
		if active := b.m.Active(); !slices.Equal(active, []int{3}) {
			t.Errorf("active %v after %d restarts, want the claim's", active, restarts)
		}
	}
	b.Node.Node.Fabric = nil
	if all, err := b.Reactivate(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("Reactivate = %v, %v without a fabric", all, err)
	}
}

package journal_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// manyVFs is a node with VFs of one model without serial numbers, and the marks of an earlier boot for all of them.
func manyVFs(n int) (*device.Snapshot, []journal.ResetMark) {
	snap := &device.Snapshot{Host: device.Host{BootID: "boot-1"}}
	for i := range n {
		snap.Functions = append(snap.Functions, device.Function{
			Address: pci.Address{Bus: uint8(i >> 5), Device: uint8(i & 31)}, Vendor: 0x8086, Device: 0x1520, Inode: uint64(100 + i),
			Root: "pci0000:00", Upstream: []pci.Address{{Device: uint8(i)}},
		})
	}
	marks := make([]journal.ResetMark, n)
	for i := range marks {
		marks[i] = journal.ResetMark{Address: snap.Functions[i].Address, Identity: snap.Identify(&snap.Functions[i])}
	}
	snap.Host.BootID = "boot-2"
	return snap, marks
}

// TestManyMarksAreWrittenTogether: the plugin marks all functions of a node at its start, and the node's pods wait for that. The entries of
// all marks become durable together, and a mark still replaces an earlier one of its function only.
func TestManyMarksAreWrittenTogether(t *testing.T) {
	store, _ := openStore(t)
	_, marks := manyVFs(40)
	other := marks[1]
	other.Identity.Device, other.Identity.Inode = 0x1521, 7 // another device that had the address
	must(t, store.MarkNeedsReset(other))
	syncs := store.CountSyncs()
	must(t, store.MarkNeedsReset(append(marks, marks[0])...))
	if *syncs != 1 {
		t.Errorf("the journal's directory was synced %d times, want once", *syncs)
	}
	got, err := store.NeedsReset()
	must(t, err)
	if len(got) != len(marks)+1 {
		t.Errorf("got %d marks, want %d: one for each function, and that of the other device", len(got), len(marks)+1)
	}
}

// TestMarksAreLocatedQuickly: each function of the snapshot is identified once, and not for each mark.
func TestMarksAreLocatedQuickly(t *testing.T) {
	const n = 128
	snap, marks := manyVFs(n)
	if need := journal.NeedReset(marks, snap); len(need) != n {
		t.Errorf("%d functions need a reset, want %d", len(need), n)
	}
	stages := make([]journal.SanitizeMark, n)
	for i := range stages {
		stages[i] = journal.SanitizeMark{Address: marks[i].Address, Identity: marks[i].Identity}
	}
	for name, locate := range map[string]func(){
		"NeedReset":   func() { journal.NeedReset(marks, snap) },
		"Unsanitized": func() { journal.Unsanitized(stages, snap) },
	} {
		if allocations := testing.AllocsPerRun(1, locate); allocations > 50*n {
			t.Errorf("%s of %d marks and functions: %.0f allocations, want few for each", name, n, allocations)
		}
	}
}

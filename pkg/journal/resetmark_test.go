package journal_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

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
	must(t, store.MarkNeedsReset(t.Context(), other))
	syncs := store.CountSyncs()
	must(t, store.MarkNeedsReset(t.Context(), append(marks, marks[0])...))
	if syncs.Load() != 1 {
		t.Errorf("the journal's directory was synced %d times, want once", syncs.Load())
	}
	got, err := store.NeedsReset()
	must(t, err)
	if len(got) != len(marks)+1 {
		t.Errorf("got %d marks, want %d: one for each function, and that of the other device", len(got), len(marks)+1)
	}
}

// TestFunctionsThatAreProvenTogetherAreWrittenOnce: after a crash of a node, all its VFs are proven clean at about the same time. A VF can't be
// told from others of its model, and each call would rewrite the marks of all that are still marked. One VF is proven by nobody.
func TestFunctionsThatAreProvenTogetherAreWrittenOnce(t *testing.T) {
	const n = 40
	_, marks := manyVFs(n + 1)
	for name, c := range map[string]struct {
		dir    string
		mark   func(context.Context, *journal.Store, *journal.ResetMark) error
		call   func(context.Context, *journal.Store, *journal.ResetMark) error
		proven func(*journal.Store) (left [][]device.Identity, err error)
	}{
		"MarkClean":     {"unclean", markUnclean, markClean, cleanOnes},
		"MarkSanitized": {"unsanitized", markUnsanitized, markSanitized, sanitizedOnes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, dir := openStore(t)
				for i := range marks {
					must(t, c.mark(t.Context(), store, &marks[i]))
				}
				unlock, syncs := lockDir(t, filepath.Join(dir, c.dir)), store.CountSyncs()
				done := make(chan error)
				for i := range n {
					go func() { done <- c.call(t.Context(), store, &marks[i]) }()
				}
				time.Sleep(30 * time.Second) // the proofs are written by then, one after the other
				synctest.Wait()              // all wait for the lock
				before := syncs.Load()
				unlock()
				for range n {
					must(t, <-done)
				}
				if n := syncs.Load() - before; n != 1 {
					t.Errorf("marks were rewritten by %d calls, want one", n)
				}
				left, err := c.proven(store)
				must(t, err)
				if len(left) != 1 || len(left[0]) != n {
					t.Errorf("left are marks with %v as proven; want one with %d", left, n)
				}
			})
		})
	}
}

func markUnclean(ctx context.Context, s *journal.Store, m *journal.ResetMark) error {
	return s.MarkNeedsReset(ctx, *m)
}

func markClean(ctx context.Context, s *journal.Store, m *journal.ResetMark) error {
	return s.MarkClean(ctx, m.Address, m.Identity)
}

func cleanOnes(s *journal.Store) (left [][]device.Identity, err error) {
	marks, err := s.NeedsReset()
	for i := range marks {
		left = append(left, marks[i].Proven)
	}
	return left, err
}

func markUnsanitized(ctx context.Context, s *journal.Store, m *journal.ResetMark) error {
	return s.MarkUnsanitized(ctx, journal.SanitizeMark{Address: m.Address, Identity: m.Identity})
}

func markSanitized(ctx context.Context, s *journal.Store, m *journal.ResetMark) error {
	return s.MarkSanitized(ctx, journal.SanitizeProof{Address: m.Address, Identity: m.Identity})
}

func sanitizedOnes(s *journal.Store) (left [][]device.Identity, err error) {
	marks, err := s.Unsanitized()
	for i := range marks {
		left = append(left, marks[i].Proven)
	}
	return left, err
}

// TestProvenFunctionsWhoseCallsGaveUp are not written down by others: a tenant may have got them since.
func TestProvenFunctionsWhoseCallsGaveUp(t *testing.T) {
	_, marks := manyVFs(2)
	synctest.Test(t, func(t *testing.T) {
		store, dir := openStore(t)
		must(t, store.MarkNeedsReset(t.Context(), marks...))
		unlock := lockDir(t, filepath.Join(dir, "unclean"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := markClean(ctx, store, &marks[1]); err == nil {
			t.Error("done while another process changes the marks")
		}
		unlock()
		must(t, markClean(t.Context(), store, &marks[0]))
		left, err := store.NeedsReset()
		must(t, err)
		if len(left) != 1 || left[0].Address != marks[1].Address || len(left[0].Proven) != 1 {
			t.Errorf("left are %+v, want the mark of %s", left, marks[1].Address)
		}
	})
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
		"the marks' finder": func() {
			finder := journal.NewResetMarkFinder(marks, snap)
			for i := range snap.Functions {
				f := &snap.Functions[i]
				if at, ok := finder.Find(f.Address, snap.Identify(f)); !ok || at != i {
					t.Errorf("mark %d, %t of function %d, want its own", at, ok, i)
				}
			}
		},
	} {
		if allocations := testing.AllocsPerRun(1, locate); allocations > 50*n {
			t.Errorf("%s of %d marks and functions: %.0f allocations, want few for each", name, n, allocations)
		}
	}
}

// TestAMarkIsFoundByItsFunction: by what the function is if that is known, and by its address otherwise.
func TestAMarkIsFoundByItsFunction(t *testing.T) {
	snap, marks := manyVFs(3)
	mine := snap.Identify(&snap.Functions[1])
	other := mine
	other.Device, other.Inode = 0x1521, 7
	gone := device.Identity{Vendor: 0x10de, Device: 0x2330, Serial: "4711"}
	elsewhere := marks[1]
	elsewhere.Address = pci.Address{Bus: 0xee}
	unread := journal.ResetMark{Address: snap.Functions[1].Address}
	for name, tt := range map[string]struct {
		mark journal.ResetMark
		id   device.Identity
		want bool
	}{
		"its own":                            {marks[1], mine, true},
		"its own, at an earlier address":     {elsewhere, mine, true},
		"another function's":                 {marks[2], mine, false},
		"of a device that was replaced":      {marks[1], other, false},
		"one that can't be read":             {unread, mine, true},
		"of an unknown function":             {marks[1], device.Identity{}, true},
		"its own, of a function that left":   {journal.ResetMark{Identity: gone}, gone, true},
		"another's, of a function that left": {marks[1], gone, false},
	} {
		i, ok := journal.NewResetMarkFinder([]journal.ResetMark{tt.mark}, snap).Find(snap.Functions[1].Address, tt.id)
		if ok != tt.want || ok && i != 0 {
			t.Errorf("%s: %d, %t, want %t", name, i, ok, tt.want)
		}
	}
}

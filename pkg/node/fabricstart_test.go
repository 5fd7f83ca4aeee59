package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// listen makes the socket of Fabric Manager's API again, as a start of it does.
func (b *board) listen(at time.Time) {
	b.t.Helper()
	path := filepath.Join(b.k.Root(), strings.TrimPrefix(v1alpha1.DefaultFabricAddress, "unix:"))
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at))
	if err != nil {
		b.t.Fatal(err)
	}
}

// marked returns the buses of the GPUs that are reset before their next claim, and lifts the marks.
func (b *board) marked() []uint8 {
	b.t.Helper()
	marks, err := b.Parts.Journal.NeedsReset()
	buses := []uint8{}
	for i := range marks {
		buses = append(buses, marks[i].Address.Bus)
		err = errors.Join(err, b.Parts.Journal.MarkClean(b.t.Context(), marks[i].Address, marks[i].Identity))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(buses)
	return buses
}

// TestGPUsAreResetAfterFabricManagerHasInitialized: with its first answer in a boot, and after each start without the list of active partitions.
// Those of a claim are left out.
func TestGPUsAreResetAfterFabricManagerHasInitialized(t *testing.T) {
	b, began := newBoard(t), time.Unix(1700000000, 0)
	all := fabrictest.Buses()
	slices.Sort(all)
	free := slices.DeleteFunc(slices.Clone(all), func(bus uint8) bool { return bus == 0x86 || bus == 0x87 })
	ask := func(when string, want []uint8) {
		t.Helper()
		if _, err := b.AskFabric(t.Context()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if diff := cmp.Diff(want, b.marked()); diff != "" {
			t.Errorf("%s: marked (-want +got):\n%s", when, diff)
		}
	}
	b.listen(began)
	ask("first answer", all)
	ask("the next answer", []uint8{})
	if _, err := b.Preparer.Prepare(t.Context(), pairOfGPUs()); err != nil {
		t.Fatal(err)
	}
	b.m.Restart(true)
	b.listen(began.Add(time.Minute))
	ask("it resumed", []uint8{})
	b.m.Restart(false)
	b.listen(began.Add(2 * time.Minute))
	ask("it initialized the fabric again", free)
	ask("once", []uint8{})
	b.k.Reboot()
	b.m.Restart(true)
	b.Node = b.reopen()
	ask("the first answer in the next boot, although it resumed", all)
}

// reopen opens the node as the next plugin does.
func (b *board) reopen() *node.Node {
	b.t.Helper()
	n, err := node.Open(node.Config{
		Root: b.k.Root(), StateDir: node.DefaultStateDir, RunDir: node.DefaultRunDir, CDIDir: node.DefaultCDIDir,
		Node: b.Node.Node, Fabric: b.m, WriteLimit: 10 * time.Second,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = n.Close() })
	return n
}

// TestGPUsThatCanNotBeMarked: no claim gets them until they are. Fabric Manager is asked all the same, for claims that end.
func TestGPUsThatCanNotBeMarked(t *testing.T) {
	b := newBoard(t)
	dir := filepath.Join(b.k.Root(), node.DefaultStateDir, "journal", "unclean")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.ask(true, "can't be marked")
	if s := b.state(); !strings.Contains(s.Away, "can't be marked") || len(s.Partitions) != 15 {
		t.Errorf("%+v; want the partitions, and why no claim gets one", s)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	b.ask(true, "")
	if got := b.marked(); len(got) != 8 {
		t.Errorf("marked %v, want all GPUs", got)
	}
	if away := b.state().Away; away != "" {
		t.Errorf("no claim gets a GPU: %s", away)
	}
}

// TestClaimThatNoticesAStart: Fabric Manager starts after the last look at it, before a claim is planned or between its plan and its
// activation. Its GPUs are reset before they are activated, and not by the next claim only.
func TestClaimThatNoticesAStart(t *testing.T) {
	for name, when := range map[string]struct {
		calls  int // the claim's calls before the one that notices it
		resets int
	}{"not at all": {-1, 0}, "with the first call": {0, 2}, "with the call before the activation": {2, 2}} {
		t.Run(name, func(t *testing.T) {
			b, began := newBoard(t), time.Unix(1700000000, 0)
			b.listen(began)
			if _, err := b.AskFabric(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.marked()
			calls := 0
			b.m.Add(fabrictest.Fault{Call: fabric.CallList, Then: func() {
				if calls == when.calls {
					b.listen(began.Add(time.Minute))
				}
				calls++
			}})
			rec, err := b.Preparer.Prepare(t.Context(), pairOfGPUs())
			if err != nil {
				t.Fatal(err)
			}
			if len(rec.Proofs) != when.resets || when.resets > 0 && (!effects.IsProven(rec, pci.Address{Bus: 0x86}) || !effects.IsProven(rec, pci.Address{Bus: 0x87})) {
				t.Errorf("got the proofs %+v, want those of %d GPUs", rec.Proofs, when.resets)
			}
			if left := slices.ContainsFunc(b.marked(), func(bus uint8) bool { return bus == 0x86 || bus == 0x87 }); left {
				t.Error("a GPU of the claim is still marked")
			}
		})
	}
}

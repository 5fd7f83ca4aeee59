package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// board is an opened node with an HGX H100 board and its Fabric Manager.
type board struct {
	t *testing.T
	k *sysfstest.Kernel
	m *fabrictest.Manager
	*node.Node
}

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{t: t, k: sysfstest.New(t), m: fabrictest.New(fabrictest.H100())}
	cfg := &v1alpha1.NodeConfig{Fabric: &v1alpha1.Fabric{}}
	for i, bus := range fabrictest.Buses() {
		f := sysfstest.GPU(pci.Address{Bus: bus})
		f.Driver = "vfio-pci"
		b.k.AddRootPort(bus)
		b.k.Add(f)
		cfg.Fabric.Modules = append(cfg.Fabric.Modules, v1alpha1.FabricModule{Module: new(i + 1), Address: f.Address})
	}
	cfg.Default()
	n, err := node.Open(node.NodeConfig{
		Root: b.k.Root(), StateDir: node.DefaultStateDir, RunDir: node.DefaultRunDir, CDIDir: node.DefaultCDIDir,
		Node: cfg, Fabric: b.m, WriteLimit: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	b.Node = n
	return b
}

// ask asks Fabric Manager, and compares whether that changed something.
func (b *board) ask(changed bool, says string) {
	b.t.Helper()
	got, err := b.AskFabric(b.t.Context())
	if got != changed || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
		b.t.Errorf("AskFabric = %t, %v; want %t and %q", got, err, changed, says)
	}
}

func (b *board) state() fabric.State {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.k.Root(), fabric.StateFile))
	if err != nil {
		b.t.Fatal(err)
	}
	var s fabric.State
	if err := json.Unmarshal(text, &s); err != nil {
		b.t.Fatal(err)
	}
	return s
}

// record writes the record of a claim that is prepared with a partition.
func (b *board) record(partition string) {
	b.t.Helper()
	snap, err := b.Parts.Inventory.Snapshot(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	rec := &journal.Record{BootID: snap.Host.BootID, State: journal.Prepared, Plan: plan.Plan{
		Claim:     plan.Ref{UID: "claim", Namespace: "t", Name: "claim"},
		Functions: []plan.Function{{Address: pci.Address{Bus: 0x86}, Settings: []plan.Setting{{Provider: plan.ProviderFabric, Name: plan.FabricPartition, Want: partition, Activation: true}}}},
	}}
	if err := b.Parts.Journal.Save(rec); err != nil {
		b.t.Fatal(err)
	}
}

// TestFabricIsRemembered: the file has what Fabric Manager listed last, and keeps it while Fabric Manager is away.
func TestFabricIsRemembered(t *testing.T) {
	b := newBoard(t)
	b.ask(true, "")
	b.ask(false, "")
	if diff := cmp.Diff(fabric.State{Partitions: fabrictest.H100()}, b.state()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.m.Add(fabrictest.Fault{Call: fabric.CallList, Code: fabric.ConnectionNotValid})
	b.ask(true, "FM_ST_CONNECTION_NOT_VALID")
	b.ask(false, "FM_ST_CONNECTION_NOT_VALID")
	if s := b.state(); len(s.Partitions) != 15 || !strings.Contains(s.Away, "it is not reachable") {
		t.Errorf("while it is away: %+v", s)
	}
	b.m.Repair()
	b.ask(true, "")
	if s := b.state(); s.Away != "" {
		t.Errorf("when it is back: away %q", s.Away)
	}
}

// TestFabricManagerThatRestarts gets the partitions of the journal, and those with a GPU that a process has open, and no other one.
func TestFabricManagerThatRestarts(t *testing.T) {
	b := newBoard(t)
	for _, id := range []int{7, 5, 12} { // module 1; 5 and 7; 6
		if err := b.m.Activate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	b.ask(true, "")
	b.record("7 (modules 1)")
	snap, err := b.Parts.Inventory.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gpu, ok := snap.Function(pci.Address{Bus: 0x10})
	if !ok {
		t.Fatal("module 7 is not there")
	}
	h := b.k.Hold(fmt.Sprintf("/dev/vfio/%d", *gpu.Group), 1<<22, "qemu-system-x86", "")
	b.m.Restart(true)
	b.ask(true, "")
	if diff := cmp.Diff([]int{5, 7}, b.m.Active()); diff != "" {
		t.Errorf("active (-want +got):\n%s", diff)
	}
	h.Release()
	b.m.Restart(true)
	b.ask(true, "")
	if diff := cmp.Diff([]int{7}, b.m.Active()); diff != "" {
		t.Errorf("after the process has ended (-want +got):\n%s", diff)
	}
	b.m.Restart(true)
	b.m.Add(fabrictest.Fault{Call: fabric.CallReplay, Code: fabric.GenericError})
	b.ask(true, "FM_ST_GENERIC_ERROR")
}

// TestFabricManagerIsToldNothingHalf: with a record that can't be read, the list would lack a running VM's partition.
func TestFabricManagerIsToldNothingHalf(t *testing.T) {
	b := newBoard(t)
	b.ask(true, "")
	if err := os.WriteFile(filepath.Join(b.k.Root(), node.DefaultStateDir, "journal", "damaged.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.m.Restart(true)
	b.ask(true, "they are not known")
	if changes := b.m.Changes(); len(changes) > 0 {
		t.Errorf("it was told %v", changes)
	}
}

// TestNodeWithoutAFabric asks nobody.
func TestNodeWithoutAFabric(t *testing.T) {
	b := newBoard(t)
	b.Node.Node.Fabric = nil
	b.ask(false, "")
	if _, err := os.Stat(filepath.Join(b.k.Root(), fabric.StateFile)); err == nil {
		t.Error("a file was written")
	}
}

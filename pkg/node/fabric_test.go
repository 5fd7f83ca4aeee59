package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
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
	n, err := node.Open(node.Config{
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

// boot returns the node's boot.
func (b *board) boot() string {
	b.t.Helper()
	snap, err := b.Parts.Inventory.Snapshot(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return snap.Host.BootID
}

// record writes the record of a claim with a partition.
func (b *board) record(uid string, state journal.State, partition string) {
	b.t.Helper()
	snap, err := b.Parts.Inventory.Snapshot(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	rec := &journal.Record{BootID: snap.Host.BootID, State: state, Plan: plan.Plan{
		Claim:     plan.Ref{UID: uid, Namespace: "t", Name: uid},
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
	if diff := cmp.Diff(fabric.State{Partitions: fabrictest.H100(), Start: fabric.Start{Boot: b.boot()}}, b.state()); diff != "" {
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

// TestFabricManagerSaysItInOtherNumbers: a text with a process ID, a time or a counter differs each time, and the file is not written each
// time. Another reason is written at once, and the current numbers after a while.
func TestFabricManagerSaysItInOtherNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t)
		b.ask(true, "")
		for _, step := range []struct {
			after   time.Duration
			says    string
			changed bool
			want    string
		}{
			{0, "connect from pid 4711 at 09:00:01.5: refused", true, "connect from pid 4711 at 09:00:01.5: refused"},
			{10 * time.Second, "connect from pid 4712 at 09:00:11.5: refused", false, "connect from pid 4711 at 09:00:01.5: refused"},
			{10 * time.Second, "connect from pid 4713 at 09:00:21.5: no such file", true, "connect from pid 4713 at 09:00:21.5: no such file"},
			{9 * time.Minute, "connect from pid 4714 at 09:09:21.5: no such file", false, "connect from pid 4713 at 09:00:21.5: no such file"},
			{time.Minute, "connect from pid 4715 at 09:10:21.5: no such file", true, "connect from pid 4715 at 09:10:21.5: no such file"},
		} {
			time.Sleep(step.after)
			b.m.Repair()
			b.m.Add(fabrictest.Fault{Call: fabric.CallList, Err: errors.New(step.says)})
			b.ask(step.changed, step.says)
			if got := b.state().Away; got != step.want {
				t.Errorf("after %q: %q is kept, want %q", step.says, got, step.want)
			}
		}
		b.m.Repair()
		b.ask(true, "")
	})
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
	b.record("claim", journal.Prepared, "7 (modules 1)")
	h := b.hold(0x10) // module 7
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

// TestFabricManagerThatRestartsDuringAClaim gets the partition of a claim that is being prepared, or released, if it was active; and that
// of a prepared claim in any case. One that is made active for a record that is past that would stay so.
func TestFabricManagerThatRestartsDuringAClaim(t *testing.T) {
	for name, c := range map[string]struct {
		state  journal.State
		active bool
		want   []int
	}{
		"before it was activated":   {journal.Preparing, false, []int{}},
		"after it was activated":    {journal.Preparing, true, []int{3}},
		"before it was deactivated": {journal.Releasing, true, []int{3}},
		"after it was deactivated":  {journal.Releasing, false, []int{}},
		"of a prepared claim":       {journal.Prepared, false, []int{3}},
		"of a claim that has ended": {journal.Cleaned, true, []int{}},
		"in quarantine":             {journal.Quarantined, true, []int{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			if c.active {
				if err := b.m.Activate(t.Context(), 3); err != nil {
					t.Fatal(err)
				}
			}
			b.ask(true, "")
			b.record("claim", c.state, "3 (modules 1, 3)")
			b.m.Restart(true)
			if _, err := b.AskFabric(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, b.m.Active()); diff != "" {
				t.Errorf("active (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFabricManagerWithOtherNumbers, as after an update: partitions are the same by their modules. No partition of other GPUs stays active.
func TestFabricManagerWithOtherNumbers(t *testing.T) {
	swapped := fabrictest.H100() // the pairs of modules 1, 3 and 5, 7 change their numbers
	swapped[3].GPUs, swapped[5].GPUs = swapped[5].GPUs, swapped[3].GPUs
	for name, c := range map[string]struct {
		listed, now  fabric.List // before and after its restart
		former, next string      // version of the driver
		records      bool
		says         string
		changes      []string
		active       []int
	}{
		"the record is older than the list": {swapped, swapped, "580.65.06", "580.65.06", true, "", []string{"set [5]"}, []int{5}},
		"the numbers change with the version": {
			fabrictest.H100(), swapped, "570.172.08", "580.65.06", true,
			"were listed with version 570.172.08 of NVIDIA's driver, and it is 580.65.06 now: its numbers may mean other GPUs, so it is told none; end the pods with partition 3 (modules 1, 3)",
			[]string{},
			[]int{},
		},
		"no VM has a partition": {fabrictest.H100(), swapped, "570.172.08", "580.65.06", false, "", []string{"set []"}, []int{}},
		"no version is known":   {fabrictest.H100(), fabrictest.H100(), "", "", true, "", []string{"set [3]"}, []int{3}},
		"the driver is gone":    {fabrictest.H100(), fabrictest.H100(), "570.172.08", "", true, "", []string{"set [3]"}, []int{3}},
		"the numbers have changed all the same": {
			fabrictest.H100(), swapped, "", "", true,
			"partition 3 (modules 1, 3) was named by its number after a restart, and Fabric Manager made 3 (modules 5, 7) active",
			[]string{"set [3]", "deactivate 3"},
			[]int{},
		},
		"the partition is not in the list, and its number is": {
			swapped[3:4], swapped, "", "", true,
			"partition 3 (modules 1, 3) of claim t/claim (claim) is not in the last list, which has 3 (modules 5, 7)",
			[]string{},
			[]int{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			b.version(c.former)
			b.m.Set(c.listed)
			b.ask(true, "")
			if c.records {
				b.record("claim", journal.Prepared, "3 (modules 1, 3)")
			}
			b.version(c.next)
			b.m.Set(c.now)
			b.m.Restart(true)
			if _, err := b.AskFabric(t.Context()); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("AskFabric = %v; want %q", err, c.says)
			}
			if diff := cmp.Diff(c.changes, append([]string{}, b.m.Changes()...)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.active, b.m.Active()); diff != "" {
				t.Errorf("active (-want +got):\n%s", diff)
			}
			if listed := b.state().Partitions.Active(); c.says != "" && len(listed) > 0 {
				t.Errorf("the file has %v as active", listed)
			}
		})
	}
}

// TestWrongPartitionThatStaysActive: Fabric Manager makes a partition of other GPUs active after a restart, and ends it at the second try only.
// Until then no claim gets a partition. One whose GPUs are in use by then stays until they are not, and one that a claim has is right.
func TestWrongPartitionThatStaysActive(t *testing.T) {
	for name, c := range map[string]struct {
		held, claimed bool
		says          string // at the second look; empty: all is well
		active        []int
	}{
		"ended at the second try": {false, false, "", []int{}},
		"a process has a GPU":     {true, false, "is not ended while a process has one of its GPUs", []int{3}},
		"a claim has it":          {false, true, "", []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			b.ask(true, "")
			b.record("claim", journal.Prepared, "3 (modules 1, 3)")
			swapped := fabrictest.H100()
			swapped[3].GPUs, swapped[5].GPUs = swapped[5].GPUs, swapped[3].GPUs
			b.m.Set(swapped)
			b.m.Restart(true)
			b.m.Add(fabrictest.Fault{Call: fabric.CallDeactivate, Code: fabric.GenericError, Times: 1})
			b.ask(true, "FM_ST_GENERIC_ERROR")
			if s := b.state(); !strings.Contains(s.Away, "made 3 (modules 5, 7) active") || len(s.Wrong) != 1 {
				t.Errorf("%+v; want it to say what is active, and nobody else to get partitions", s)
			}
			if c.held {
				defer b.hold(0x10).Release() // module 7
			}
			if c.claimed {
				b.record("other", journal.Prepared, "3 (modules 5, 7)")
			}
			b.ask(true, c.says)
			if diff := cmp.Diff(c.active, b.m.Active()); diff != "" {
				t.Errorf("active (-want +got):\n%s", diff)
			}
			b.ask(false, c.says)
			if s := b.state(); (s.Away == "") != (c.says == "") || (len(s.Wrong) == 0) != (c.says == "") {
				t.Errorf("%+v after the second look", s)
			}
		})
	}
}

// hold has a process open the GPU on a bus.
func (b *board) hold(bus uint8) *sysfstest.Holder {
	b.t.Helper()
	snap, err := b.Parts.Inventory.Snapshot(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	gpu, ok := snap.Function(pci.Address{Bus: bus})
	if !ok {
		b.t.Fatalf("no GPU is on bus %x", bus)
	}
	return b.k.Hold(fmt.Sprintf("/dev/vfio/%d", *gpu.Group), 1<<22, "qemu-system-x86", "")
}

// version sets the version of NVIDIA's driver; empty for a node without it.
func (b *board) version(text string) {
	b.t.Helper()
	path := filepath.Join(b.k.Root(), fabric.VersionFile)
	err := os.RemoveAll(filepath.Dir(path))
	if err == nil && text != "" {
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestFabricManagerIsToldNothingHalf: with a record that can't be read, the list would lack a running VM's partition.
func TestFabricManagerIsToldNothingHalf(t *testing.T) {
	b := newBoard(t)
	b.ask(true, "")
	if err := os.WriteFile(filepath.Join(b.k.Root(), node.DefaultStateDir, "journal", "damaged.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.m.Restart(true)
	b.ask(true, "are not known")
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

// pairOfGPUs requests the partition of modules 1 and 3.
func pairOfGPUs() *claim.Request {
	req := &claim.Request{UID: "claim", Namespace: "t", Name: "claim"}
	for _, bus := range []uint8{0x86, 0x87} {
		a := pci.Address{Bus: bus}
		d := claim.Device{Request: "gpus", Pool: "node", Name: "gpu-" + a.Label(), Address: a, Pair: "gpu-x2-0000-86-87"}
		d.VFIO.Default()
		req.Devices = append(req.Devices, d)
	}
	return req
}

// TestClaimAfterACrashAndARestart: a claim is cut off after its partition was activated, and Fabric Manager restarts before the plugin
// does. The active partitions are the journal's at each step, and none is left after the recovery.
func TestClaimAfterACrashAndARestart(t *testing.T) {
	b := newBoard(t)
	b.ask(true, "")
	rec, err := b.Preparer.Prepare(t.Context(), pairOfGPUs())
	if err != nil {
		t.Fatal(err)
	}
	rec.State = journal.Preparing // as it was before the last write
	if err := b.Parts.Journal.Save(rec); err != nil {
		t.Fatal(err)
	}
	b.m.Restart(true)
	if _, err := b.AskFabric(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{3}, b.m.Active()); diff != "" {
		t.Errorf("active, with the record (-want +got):\n%s", diff)
	}
	if r, err := b.Recover(t.Context()); err != nil || len(r.Unfinished) > 0 || len(r.Undone) != 1 {
		t.Fatalf("Recover = %+v, %v; want the claim undone", r, err)
	}
	if rec, err := b.Parts.Journal.Load("claim"); rec != nil || err != nil || len(b.m.Active()) > 0 {
		t.Errorf("record %v, %v, active %v; want nothing of the claim", rec, err, b.m.Active())
	}
	b.m.Restart(true)
	if _, err := b.AskFabric(t.Context()); err != nil || len(b.m.Active()) > 0 {
		t.Errorf("%v; after another restart active %v, want none", err, b.m.Active())
	}
}

// Package board makes nodes for the tests of the audit: whole machines as trees
// of files, each as its vendor and operator would have it, so that no check fails
// on them, and each a place to plant faults in.
package board

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// Board is a kind of machine.
type Board struct {
	// Name is a word for tables: "server".
	Name  string
	About string
	// Build makes a node of the kind, in good order.
	Build func(testing.TB) *Tree
}

// All returns all boards.
func All() []Board {
	return []Board{
		{Name: "server", About: "two GPUs, one of them with companions, and a NIC with VFs, Intel, two tenants", Build: Server},
	}
}

// Tree is a node to be read below [sysfstest.Kernel.Root].
type Tree struct {
	*sysfstest.Kernel
	TB testing.TB
	// Devices are the addresses of what the board has, by a name of its own:
	// "gpu0", "nic0", "nic0/vf3". Tenants' faults refer to them.
	Devices map[string]pci.Address
}

// New returns the tree of a node without functions, set up as any good node is.
func New(tb testing.TB) *Tree {
	tb.Helper()
	t := &Tree{Kernel: sysfstest.New(tb), TB: tb, Devices: map[string]pci.Address{}}
	for _, good := range []func(){
		t.goodIommu, t.goodAcs, t.goodVfio, t.goodReset, t.goodGpu, t.goodNic,
		t.goodHost, t.goodRuntime, t.goodCdi, t.goodConfidential, t.goodObservation,
	} {
		good()
	}
	return t
}

// Put writes a file of the node.
func (t *Tree) Put(name, content string) {
	t.TB.Helper()
	t.PutFile(name, content)
}

// Delete removes a file or a directory with all that is in it.
func (t *Tree) Delete(name string) {
	t.TB.Helper()
	if err := os.RemoveAll(t.Path(name)); err != nil {
		t.TB.Fatal(err)
	}
}

// Mode sets a file's permissions.
func (t *Tree) Mode(name string, mode os.FileMode) {
	t.TB.Helper()
	if err := os.Chmod(t.Path(name), mode); err != nil {
		t.TB.Fatal(err)
	}
}

// Give has a tenant's claim hold devices, prepared and in the hands of a
// sandbox, as the journal has it.
func (t *Tree) Give(tenant, name string, devices ...pci.Address) *journal.Record {
	t.TB.Helper()
	rec := t.record(tenant, name, devices)
	t.Save(rec)
	return rec
}

// Save writes a claim's record.
func (t *Tree) Save(rec *journal.Record) {
	t.TB.Helper()
	store, err := journal.Open(filepath.Join(t.Root(), "var/lib/kata-vfio/journal"))
	if err == nil {
		err = store.Save(rec)
	}
	if err != nil {
		t.TB.Fatal(err)
	}
}

func (t *Tree) record(tenant, name string, devices []pci.Address) *journal.Record {
	boot, err := os.ReadFile(t.Path("proc/sys/kernel/random/boot_id"))
	if err != nil {
		t.TB.Fatal(err)
	}
	uid := fmt.Sprintf("%s-%s-0000-4000-8000-000000000000", tenant, name)
	rec := &journal.Record{Kind: journal.Claim, State: journal.Prepared, BootID: string(boot[:36]), Since: "2026-11-22T08:00:00Z"}
	rec.Plan.Claim = plan.Ref{UID: uid, Namespace: tenant, Name: name, Pods: []claim.Pod{{Name: name, UID: "pod-" + uid}}}
	for i, a := range devices {
		group, _ := t.GroupOf(a)
		rec.Plan.Functions = append(rec.Plan.Functions, plan.Function{
			Address: a, Group: group, Role: plan.RoleDevice, Target: plan.Binding{Driver: "vfio-pci"},
		})
		rec.Plan.Devices = append(rec.Plan.Devices, plan.Device{
			Request: fmt.Sprintf("r%d", i), Name: "gpu-" + a.Label(), Address: a, Give: []pci.Address{a},
		})
	}
	rec.Sandbox = &journal.Sandbox{ID: "sandbox-" + name, Since: "2026-11-22T08:00:01Z"}
	return rec
}

// Package board makes nodes for the tests of the audit: whole machines as trees
// of files, each as its vendor and operator would have it, so that no check fails
// on them, and each a place to plant faults in.
package board

import (
	"os"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
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
		{Name: "fabric", About: "four GPUs on two NVSwitches and an InfiniBand card with VFs, two tenants", Build: Fabric},
		{Name: "switch", About: "two GPUs of two tenants behind one PCIe switch, a third free", Build: Switch},
		{Name: "hgx", About: "eight GPUs, NVSwitches and eight NICs with VFs behind PCIe switches, two sockets, Intel, two tenants", Build: HGX},
		{Name: "desktop", About: "a consumer board without ACS, a graphics card that is one tenant's with its whole group", Build: Desktop},
		{Name: "amd", About: "two hives of GPUs joined by XGMI and a NIC with VFs, AMD, two tenants", Build: AMD},
		{Name: "vm", About: "a virtual machine with a GPU passed through and an IOMMU of QEMU's", Build: VM},
		{Name: "arm", About: "a GPU and a NIC with VFs behind an SMMU, two tenants", Build: Arm},
	}
}

// Tree is a node to be read below [sysfstest.Kernel.Root].
type Tree struct {
	*sysfstest.Kernel
	TB testing.TB
	// Devices are the addresses of what the board has, by a name of its own:
	// "gpu0", "nic0", "nic0/vf3". Tenants' faults refer to them.
	Devices map[string]pci.Address

	// Name is the node's, by which it signs its ledger.
	Name string

	processes int
	ledger    *writer.Writer // nil until it is told of something
}

// New returns the tree of a node without functions, set up as any good node is.
func New(tb testing.TB) *Tree {
	tb.Helper()
	t := &Tree{Kernel: sysfstest.New(tb), TB: tb, Devices: map[string]pci.Address{}, Name: "gpu-07"}
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

// Save writes a claim's record, as the plugin does but for its durability.
func (t *Tree) Save(rec *journal.Record) {
	t.TB.Helper()
	data, err := journal.Encode(rec)
	if err != nil {
		t.TB.Fatal(err)
	}
	name := "var/lib/kata-vfio/journal/" + rec.ID() + ".json"
	t.Put(name, string(data))
	t.Mode(name, 0o600)
}

// Text returns a file of the node.
func (t *Tree) Text(name string) string {
	t.TB.Helper()
	data, err := os.ReadFile(t.Path(name))
	if err != nil {
		t.TB.Fatal(err)
	}
	return string(data)
}

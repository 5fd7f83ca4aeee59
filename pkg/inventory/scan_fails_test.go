package inventory_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func TestScanFails(t *testing.T) {
	base := func(t *testing.T) tree {
		tr := newTree(t)
		tr.function("pci0000:00/0000:00:03.0", nil)
		return tr
	}
	const where = "sys/devices/pci0000:00/0000:00:03.0"
	tests := []struct {
		name, path string
		spoil      func(tree)
	}{
		{"no list of functions", sysfs.Devices, func(tr tree) { tr.remove("sys") }},
		{"a name that is no address", sysfs.Devices, func(tr tree) { tr.link(sysfs.Devices+"/virtio0", where) }},
		{"a number that is none", "vendor", func(tr tree) { tr.put(where+"/vendor", "Intel\n") }},
		{"no vendor", "vendor", func(tr tree) { tr.remove(where + "/vendor") }},
		{"a class too long", "class", func(tr tree) { tr.put(where+"/class", "0x01020000\n") }},
		{"an odd NUMA node", "numa_node", func(tr tree) { tr.put(where+"/numa_node", "one\n") }},
		{"a directory for an attribute", "modalias", func(tr tree) { tr.mkdir(where + "/modalias") }},
		{"an odd resource", "resource", func(tr tree) { tr.put(where+"/resource", "0x0\n") }},
		{"an odd group", "iommu_group", func(tr tree) { tr.link(where+"/iommu_group", "sys/kernel/iommu_groups/x") }},
		{"an odd PF", "physfn", func(tr tree) { tr.link(where+"/physfn", "sys/devices/pci0000:00") }},
		{"an odd list of groups", "iommu_groups", func(tr tree) { tr.put("sys/kernel/iommu_groups/x/type", "DMA\n") }},
		{"an odd region", "reserved_regions", func(tr tree) { tr.put("sys/kernel/iommu_groups/1/reserved_regions", "0 msi\n") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := base(t)
			tt.spoil(tr)
			snap, err := inventory.Scan(t.Context(), tr.open())
			if err == nil || snap != nil {
				t.Fatalf("snapshot %+v, error %v; want an error and nothing else", snap, err)
			}
			if !strings.Contains(err.Error(), tt.path) {
				t.Errorf("error %q does not name %s", err, tt.path)
			}
		})
	}
}

func TestScanCancelled(t *testing.T) {
	tr := newTree(t)
	tr.function("pci0000:00/0000:00:03.0", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if snap, err := inventory.Scan(ctx, tr.open()); !errors.Is(err, context.Canceled) || snap != nil {
		t.Errorf("snapshot %v, error %v; want context.Canceled", snap, err)
	}
}

// A function that goes while it is read is left out: its link is still listed,
// its directory is gone.
func TestScanVanished(t *testing.T) {
	tr := newTree(t)
	tr.function("pci0000:00/0000:00:03.0", nil)
	tr.remove(tr.function("pci0000:00/0000:00:04.0", nil))
	snap := scan(t, tr.open())
	if len(snap.Functions) != 1 || snap.Functions[0].Address != addr(t, "0000:00:03.0") {
		t.Errorf("functions: %+v", snap.Functions)
	}
}

func TestScanEmptyNode(t *testing.T) {
	snap := scan(t, newTree(t).open())
	if len(snap.Functions) != 0 || len(snap.Groups) != 0 {
		t.Errorf("snapshot: %+v", snap)
	}
	empty, err := sysfs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = empty.Close() }()
	if snap, err := inventory.Scan(t.Context(), empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is no node: %v, %v; want ErrNotExist", snap, err)
	}
}

// TestScanOfAFunctionThatIsBeingReset: a reset that hangs keeps everybody from a
// bridge's configuration space. The rest of the node is read all the same.
func TestScanOfAFunctionThatIsBeingReset(t *testing.T) {
	k := sysfstest.New(t)
	gpu, bridge := k.AddBehindBridge(0x70, 16)
	before := scan(t, open(t, k))
	config := k.Path(sysfs.FunctionPath(bridge) + "/config")
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(config, 0o600); err != nil { // reads like it: not at all
		t.Fatal(err)
	}
	lock, err := os.OpenFile(config, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = lock.Write(make([]byte, 64)); _ = lock.Close() })
	node := open(t, k)
	snap := scan(t, node)
	if f := function(t, snap, bridge); !f.Locked || !f.Capabilities.Truncated {
		t.Errorf("the bridge is %+v; want it locked, and nothing known of its capabilities", f)
	}
	if f := function(t, snap, gpu); f.Locked || f.Capabilities.Truncated {
		t.Errorf("the GPU is %+v", f)
	}
	again, err := inventory.Rescan(t.Context(), node, before, []pci.Address{bridge})
	if err != nil {
		t.Fatal(err)
	}
	if f := function(t, again, bridge); !f.Locked || f.Capabilities.Truncated {
		t.Errorf("read again the bridge is %+v; want it locked, with what was known before", f)
	}
}

package audit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func find(t *testing.T, inv *audit.Inventory, a pci.Address) *audit.Device {
	t.Helper()
	for i := range inv.Devices {
		if inv.Devices[i].Address == a {
			return &inv.Devices[i]
		}
	}
	t.Fatalf("no device %s", a)
	return nil
}

func TestStanding(t *testing.T) {
	inv := sample()
	for a, want := range map[pci.Address]audit.Grade{
		at(0x20, 0, 0): audit.None,
		at(0x21, 0, 0): audit.None, // the node uses it
		at(0x22, 0, 0): audit.Good, // its companion is but a note of low severity
		at(0x24, 1, 0): audit.Bad,
		at(0x25, 0, 0): audit.Concern,
	} {
		if got := find(t, inv, a).Grade(); got != want {
			t.Errorf("%s: standing %d, want %d", a, got, want)
		}
	}
}

func TestProduct(t *testing.T) {
	for _, c := range []struct {
		f    device.Function
		want string
	}{
		{device.Function{Vendor: 0x10de, Device: 0x2330, VendorName: "NVIDIA", Model: "GH100"}, "GH100"},
		{device.Function{Vendor: 0x10de, Device: 0x2330, VendorName: "NVIDIA"}, "NVIDIA 2330"},
		{device.Function{Vendor: 0x10de, Device: 0x2330}, "10de:2330"},
	} {
		if got := (&audit.Device{Function: &c.f}).Product(); got != c.want {
			t.Errorf("product = %q, want %q", got, c.want)
		}
	}
}

func TestACSIsShownForPorts(t *testing.T) {
	inv := sample()
	for a, want := range map[pci.Address]isolation.ACSState{
		at(0x20, 0, 0): isolation.ACSOn, at(0x23, 0, 0): isolation.ACSAbsent, at(0x22, 0, 0): "",
	} {
		if got := find(t, inv, a).ACS; got != want {
			t.Errorf("%s: ACS %q, want %q", a, got, want)
		}
	}
}

// sited is a function at bus:00.0 below a switch (0 is none) of a root, on a NUMA node.
func sited(bus uint8, class pci.Class, port uint8, root string, node int) device.Function {
	f := device.Function{Address: pci.Address{Bus: bus}, Class: class, Root: root, NUMANode: &node, Type: device.Classify(class, "", false, false)}
	if port > 0 {
		f.Switch = &pci.Address{Bus: port}
	}
	return f
}

func TestInventoryPairsNearestDevices(t *testing.T) {
	const gpu, nic, disk = 0x030200, 0x020000, 0x010802
	inv := audit.NewInventory(&device.Snapshot{Functions: []device.Function{
		sited(0x12, gpu, 0x11, "a", 0), sited(0x13, gpu, 0x11, "a", 0), sited(0x14, nic, 0x11, "a", 0), sited(0x15, nic, 0x11, "a", 0),
		sited(0x16, disk, 0x11, "a", 0),
		sited(0x22, gpu, 0x21, "a", 0),                           // no NIC at its switch: the root's
		sited(0x32, gpu, 0, "b", 1), sited(0x42, nic, 0, "c", 1), // no more than a node in common
		sited(0x52, nic, 0x51, "a", 0), // as near to 22 as those at the first switch, but they have nearer ones
		sited(0x62, gpu, 0, "d", 2),    // has none
	}})
	got, brief := map[string]string{}, map[string]string{}
	for i := range inv.Devices {
		if d := &inv.Devices[i]; d.Near != nil {
			got[d.Address.String()[5:7]] = d.Near.Words()
			brief[d.Address.String()[5:7]] = d.Near.Brief()
		}
	}
	want := map[string]string{
		"12": "0000:14:00.0 0000:15:00.0, same switch", "13": "0000:14:00.0 0000:15:00.0, same switch",
		"14": "0000:12:00.0 0000:13:00.0, same switch", "15": "0000:12:00.0 0000:13:00.0, same switch",
		"22": "0000:14:00.0 0000:15:00.0 0000:52:00.0, same root", "52": "0000:22:00.0, same root",
		"32": "0000:42:00.0, same NUMA node", "42": "0000:32:00.0, same NUMA node",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for of, want := range map[string]string{"22": "0000:14:00.0 +2, same root", "32": "0000:42:00.0, same NUMA node"} {
		if brief[of] != want {
			t.Errorf("in brief %q, want %q", brief[of], want)
		}
	}
}

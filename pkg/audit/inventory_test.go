package audit_test

import (
	"slices"
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

// TestStandingInAGroupOfTheHost: a function is not shown as isolated where a claim of it would include what no rule selects.
func TestStandingInAGroupOfTheHost(t *testing.T) {
	const nic, gpu, sound, usb, endpoint pci.Class = 0x020000, 0x030200, 0x040300, 0x0c0330, 0x130000
	for name, c := range map[string]struct {
		first, mate device.Function
		want        audit.Grade
	}{
		"a port of a NIC beside one on a host driver":  {base(at(0x21, 0, 0), nic, 1, "vfio-pci"), base(at(0x21, 0, 1), nic, 1, "ice"), audit.Bad},
		"a GPU beside a USB controller":                {base(at(0x21, 0, 0), gpu, 1, "nvidia"), base(at(0x22, 0, 0), usb, 1, "xhci_hcd"), audit.Bad},
		"a USB controller beside one on a host driver": {base(at(0x21, 0, 0), usb, 1, "xhci_hcd"), base(at(0x22, 0, 0), usb, 1, "xhci_hcd"), audit.Bad},
		"a GPU and its audio":                          {base(at(0x21, 0, 0), gpu, 1, "nvidia"), base(at(0x21, 0, 1), sound, 1, "snd_hda_intel"), audit.Good},
		"the audio of a GPU":                           {base(at(0x21, 0, 1), sound, 1, "snd_hda_intel"), base(at(0x21, 0, 0), gpu, 1, "nvidia"), audit.Good},
		"a GPU beside what has no driver":              {base(at(0x21, 0, 0), gpu, 1, "nvidia"), base(at(0x22, 0, 0), endpoint, 1, ""), audit.Bad},
	} {
		t.Run(name, func(t *testing.T) {
			s := &device.Snapshot{
				Functions: []device.Function{c.first, c.mate},
				Groups:    []device.Group{{Number: 1, Type: "DMA", Members: []pci.Address{c.first.Address, c.mate.Address}}},
				Host:      device.Host{IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI"}, IOMMUFD: true},
			}
			slices.SortFunc(s.Functions, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
			for i := range s.Functions {
				f := &s.Functions[i]
				f.Type = device.Classify(f.Class, f.Capabilities.Header, false, false)
			}
			if d := find(t, assess(s), c.first.Address); d.Grade() != c.want || !d.Isolated {
				t.Errorf("standing %d, want %d: %+v", d.Grade(), c.want, d.Refusals)
			}
		})
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
	inv := assess(&device.Snapshot{Functions: []device.Function{
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

package audit_test

import (
	"testing"

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

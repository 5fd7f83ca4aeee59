package inventory_test

import (
	"reflect"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// pciIDs is a small database with all that a large one has.
const pciIDs = `#
#	List of PCI ID's
#
8086  Intel Corporation
	10c9  82576 Gigabit Network Connection
		103c 31ef  NC362i Integrated Dual port Gigabit Server Adapter
	10ca  82576 Virtual Function
# a comment in between

	1521  I350 Gigabit Network Connection
zzzz  no vendor
10de  NVIDIA Corporation
	2684  AD102 [GeForce RTX 4090]
ffff  Illegal Vendor ID
C 03  Display controller
	00  VGA compatible controller
10de  not a vendor any more
`

func TestNames(t *testing.T) {
	tests := []struct {
		vendor, device    pci.ID
		vendorName, model string
	}{
		{0x8086, 0x10c9, "Intel Corporation", "82576 Gigabit Network Connection"},
		{0x8086, 0x10ca, "Intel Corporation", "82576 Virtual Function"},
		{0x8086, 0x1521, "Intel Corporation", "I350 Gigabit Network Connection"},
		{0x8086, 0x2684, "Intel Corporation", ""},
		{0x8086, 0x103c, "Intel Corporation", ""}, // a subsystem's vendor
		{0x10de, 0x2684, "NVIDIA Corporation", "AD102 [GeForce RTX 4090]"},
		{0xffff, 0x0000, "Illegal Vendor ID", ""},
		{0x1234, 0x1111, "", ""},
	}
	names := inventory.ParseNames([]byte(pciIDs))
	for _, tt := range tests {
		vendor, model := names.Name(tt.vendor, tt.device)
		if vendor != tt.vendorName || model != tt.model {
			t.Errorf("%v:%v is %q %q, want %q %q", tt.vendor, tt.device, vendor, model, tt.vendorName, tt.model)
		}
	}
	var none *inventory.Names
	if vendor, model := none.Name(0x8086, 0x10c9); vendor+model != "" {
		t.Errorf("no database names %q %q", vendor, model)
	}
}

func TestLoadNames(t *testing.T) {
	tr := newTree(t)
	tr.function("pci0000:00/0000:00:03.0", nil)
	node := tr.open()
	names, err := inventory.LoadNames(node)
	if err != nil || names != nil {
		t.Errorf("a node without a database has names %v, %v", names, err)
	}
	if f := function(t, scan(t, node, inventory.WithNames(names)), addr(t, "0000:00:03.0")); f.Model != "" {
		t.Errorf("model is %q without a database", f.Model)
	}
	tr.put("usr/share/hwdata/pci.ids", pciIDs)
	if names, err = inventory.LoadNames(node); err != nil {
		t.Fatal(err)
	}
	snap := scan(t, node, inventory.WithNames(names))
	if f := function(t, snap, addr(t, "0000:00:03.0")); f.VendorName != "Intel Corporation" || f.Model != "82576 Virtual Function" {
		t.Errorf("the function is called %q %q", f.VendorName, f.Model)
	}
	late := scan(t, node)
	names.Apply(late)
	if !reflect.DeepEqual(late, snap) {
		t.Errorf("named afterwards it is %+v", late)
	}
	// Who rescans without the database keeps the names.
	again, err := inventory.Rescan(t.Context(), node, snap, []pci.Address{addr(t, "0000:00:03.0")})
	if err != nil {
		t.Fatal(err)
	}
	if f := function(t, again, addr(t, "0000:00:03.0")); f.Model != "82576 Virtual Function" {
		t.Errorf("after a rescan the model is %q", f.Model)
	}
	tr.remove("usr/share/hwdata/pci.ids")
	tr.mkdir("usr/share/hwdata/pci.ids")
	if names, err := inventory.LoadNames(node); err == nil {
		t.Errorf("a directory was read as %v", names)
	}
}

func FuzzNames(f *testing.F) {
	f.Add(pciIDs, uint16(0x8086), uint16(0x10ca))
	f.Add("8086  x\n\t10ca  y", uint16(0x8086), uint16(0x10ca))
	f.Add("8086", uint16(0x8086), uint16(0))
	f.Fuzz(func(t *testing.T, text string, vendor, dev uint16) {
		vendorName, model := inventory.ParseNames([]byte(text)).Name(pci.ID(vendor), pci.ID(dev))
		if vendorName == "" && model != "" {
			t.Errorf("%04x:%04x is the %q of nobody", vendor, dev, model)
		}
	})
}

package topology_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestTheCauseIsRedAsTheLegendSays, also where it is no bridge: a disk controller
// in a GPU's group that the host needs.
func TestTheCauseIsRedAsTheLegendSays(t *testing.T) {
	m := newSample()
	port := m.port("0000:20:01.0", "0000:20", 0, pci.RootPort, on())
	gpu := m.add("0000:21:00.0", "0000:20", 0, 0x030200, "H100", with("nvidia", below(port)))
	disk := m.add("0000:21:00.1", "0000:20", 0, 0x010601, "SATA controller", with("ahci", below(port), func(f *device.Function) {
		f.Uses = []device.Use{{Kind: device.UseMount, Name: "sda1", Detail: "/"}}
	}))
	m.join(gpu, disk)
	inv := m.inventory()
	for i := range inv.Devices {
		if d := &inv.Devices[i]; d.Address == gpu && d.Isolated {
			t.Fatal("the GPU counts as isolated: the test has no culprit")
		}
	}
	for _, c := range topology.Arrange(inv).Cards {
		if c.Device.Address == disk && (c.Grade != audit.Bad || !c.Culprit) {
			t.Errorf("the card of %s is %v, culprit %v", disk, c.Grade, c.Culprit)
		}
	}
}

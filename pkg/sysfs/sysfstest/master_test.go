package sysfstest_test

import (
	"os"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestBusMasteringGoesWithTheDriver: on with a host's driver, off with VFIO's until
// somebody opens the function.
func TestBusMasteringGoesWithTheDriver(t *testing.T) {
	k := sysfstest.New(t)
	host, idle := sysfstest.GPU(pci.Address{Bus: 0x3b}), sysfstest.GPU(pci.Address{Bus: 0x3d})
	idle.Driver = "vfio-pci"
	k.AddRootPort(0x3b)
	k.AddRootPort(0x3d)
	k.Add(host, idle)
	for a, want := range map[pci.Address]byte{host.Address: 0x06, idle.Address: 0x02} {
		config, err := os.ReadFile(k.Path("sys/bus/pci/devices/" + a.String() + "/config"))
		if err != nil || config[4] != want {
			t.Errorf("%s has command %#x (%v), want %#x", a, config[4], err, want)
		}
	}
}

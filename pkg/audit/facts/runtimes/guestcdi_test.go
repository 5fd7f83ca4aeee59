package runtimes_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestWhichFunctionsKataAsksTheGuestFor(t *testing.T) {
	goShim := handler(t, "runtime_type = 'io.containerd.kata-gpu.v2'\nruntime_path = '/opt/kata/bin/containerd-shim-kata-v2'")
	rustShim := handler(t, "runtime_type = 'io.containerd.kata-gpu.v2'\nruntime_path = '/opt/kata/runtime-rs/bin/containerd-shim-kata-v2'")
	for name, c := range map[string]struct {
		vendor     pci.ID
		class      pci.Class
		inGo, rust string
	}{
		"an NVIDIA 3D controller":    {0x10de, 0x030200, "nvidia.com/gpu", "nvidia.com/gpu"},
		"an NVIDIA VGA controller":   {0x10de, 0x030000, "nvidia.com/gpu", "nvidia.com/gpu"},
		"an NVSwitch":                {0x10de, 0x068000, "", ""},
		"an AMD VGA controller":      {0x1002, 0x030000, "", "amd.com/gpu"},
		"an AMD display controller":  {0x1002, 0x038000, "", ""},
		"an AMD accelerator":         {0x1002, 0x120000, "", ""},
		"an Intel VGA controller":    {0x8086, 0x030000, "", "intel.com/gpu"},
		"an Intel display":           {0x8086, 0x038000, "", ""},
		"an accelerator of another":  {0x1da3, 0x120000, "", ""},
		"a Mellanox NIC":             {0x15b3, 0x020000, "", "nvidia.com/nic"},
		"a Mellanox InfiniBand card": {0x15b3, 0x020700, "", "nvidia.com/nic"},
		"an Intel NIC":               {0x8086, 0x020000, "", ""},
	} {
		f := &device.Function{Vendor: c.vendor, Class: c.class}
		if inGo, rust := goShim.GuestKind(f), rustShim.GuestKind(f); inGo != c.inGo || rust != c.rust {
			t.Errorf("%s: the Go runtime asks for %q and the Rust runtime for %q; want %q and %q", name, inGo, rust, c.inGo, c.rust)
		}
	}
}

package runtimes

import (
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// GuestKind returns the kind of CDI device, "nvidia.com/gpu", that Kata 4.1 has its agent look for in the guest
// when a container has the function: what the guest's CDI specification has under it is what the container gets
// of the device's nodes. It is empty where Kata asks for none.
func (h *Handler) GuestKind(f *device.Function) string {
	if h.IsRust() {
		return rustGuestKind(f)
	}
	return goGuestKind(f)
}

// guestKey is what Kata compares: the vendor, and the class's first three digits, so that 030 is a VGA or a 3D
// controller (0300, 0302), and no other display controller (0380) or accelerator (1200).
type guestKey struct {
	vendor pci.ID
	class  pci.Class
}

func guestKeyOf(f *device.Function) guestKey { return guestKey{f.Vendor, f.Class >> 12} }

// goGuestKind is virtcontainers' cdiDeviceKind.
func goGuestKind(f *device.Function) string {
	if guestKeyOf(f) == (guestKey{0x10de, 0x030}) {
		return "nvidia.com/gpu"
	}
	return ""
}

// rustGuestKind is runtime-rs' CDI_DEVICE_KIND_TABLE.
func rustGuestKind(f *device.Function) string {
	switch guestKeyOf(f) {
	case guestKey{0x10de, 0x030}:
		return "nvidia.com/gpu"
	case guestKey{0x8086, 0x030}:
		return "intel.com/gpu"
	case guestKey{0x1002, 0x030}:
		return "amd.com/gpu"
	case guestKey{0x15b3, 0x020}:
		return "nvidia.com/nic"
	}
	return ""
}

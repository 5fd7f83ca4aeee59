package device

import "strings"

// GenericVFIO is the VFIO driver that serves every function.
const GenericVFIO = "vfio-pci"

// IsVFIO reports whether a kernel driver hands its function to user space
// through VFIO: vfio-pci and its variants (mlx5_vfio_pci, nvgrace_gpu_vfio_pci,
// xe_vfio_pci, ...), which by the kernel's convention end in "vfio_pci".
func IsVFIO(driver string) bool {
	return strings.HasSuffix(normalDriver(driver), "vfio_pci")
}

// SameDriver compares a driver or module name with another as modprobe does:
// "-" and "_" are one.
func SameDriver(a, b string) bool { return normalDriver(a) == normalDriver(b) }

func normalDriver(name string) string { return strings.ReplaceAll(name, "-", "_") }

// DriverOf returns the name under which a module's PCI driver is or will be
// registered: what the kernel shows now, else a guess by the module's own name,
// which most VFIO variants use (KBUILD_MODNAME). vfio_pci registers as "vfio-pci"
// (drivers/vfio/pci/vfio_pci.c), and others may register as they like: xe_vfio_pci as
// "xe-vfio-pci". The name is known once the module is loaded.
func (h *Host) DriverOf(module string) (name string, loaded bool) {
	for _, d := range h.Drivers {
		if SameDriver(d, module) {
			return d, true
		}
	}
	if SameDriver(module, GenericVFIO) {
		return GenericVFIO, false
	}
	return normalDriver(module), false
}

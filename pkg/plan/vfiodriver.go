package plan

import "github.com/kata-vfio/kata-vfio/pkg/device"

// vfioDriver returns the VFIO driver for f: the module whose "vfio_pci:" alias
// matches most specifically, as `modprobe -R` over modules.alias would choose
// (Documentation/driver-api/vfio-pci-device-specific-driver-acceptance.rst),
// and vfio-pci where none does. load names the module when it is not loaded.
func vfioDriver(h *device.Host, f *device.Function) (driver, load string) {
	module, best := "vfio_pci", -1
	for _, a := range h.VFIOAliases {
		if score := a.Specificity(); score > best && a.Match(f.Modalias) {
			module, best = a.Module, score
		}
	}
	driver, loaded := h.DriverOf(module)
	if loaded {
		return driver, ""
	}
	return driver, module
}

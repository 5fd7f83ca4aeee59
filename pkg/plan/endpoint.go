package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// isEndpoint reports whether the device is to reach its VM as a physical
// endpoint.
func (c *candidate) isEndpoint() bool {
	return c.claimed.VF != nil && c.claimed.VF.Attachment == v1alpha1.AttachPhysicalEndpoint
}

// endpoint refuses a VF that Kata would not take as a physical endpoint: it
// needs a PCI function with an Ethernet interface, alone in its group, and
// knows legacy groups only.
func (c *candidate) endpoint() *Refusal {
	if !c.isEndpoint() {
		return nil
	}
	no := func(text, fix string) *Refusal {
		return &Refusal{Code: Unsupported, Driver: c.f.Driver, Text: text, Fix: fix}
	}
	const fix = "leave `attachment: PhysicalEndpoint` out, so that the VM gets the function and kata-vfio-guestnet configures it, or claim another VF"
	switch {
	case c.f.VF == nil || c.f.Class.Sub() != pci.ClassEthernet:
		return no(fmt.Sprintf("%s (class %s) is no virtual function of an Ethernet controller, so Kata can't take it as a physical endpoint", c.f.Address, c.f.Class), fix)
	case c.vf == nil || c.vf.Want.MAC == "":
		return no(fmt.Sprintf("the address of %s can't be set by its PF, and Kata finds a physical endpoint's interface by it", c.f.Address), fix)
	case len(c.all) > 1:
		return no(fmt.Sprintf("%s is not alone: %d functions go together, and Kata takes a physical endpoint by a group of its own", c.f.Address, len(c.all)), fix)
	case c.claimed.VFIO.Backend == v1alpha1.BackendIOMMUFD:
		return no("backend IOMMUFD is asked for, and Kata takes a physical endpoint by its group", "say `backend: Auto`")
	}
	return nil
}

// endpointBinding is the binding on which an endpoint waits. The override lets
// its driver have it though the PF's sriov_drivers_autoprobe is off
// (pci_device_can_probe in drivers/pci/pci-driver.c).
func endpointBinding(f *device.Function) *Binding {
	driver := f.Driver
	if driver == "" || device.IsVFIO(driver) {
		driver = FindDriver
	}
	return &Binding{Driver: driver, Override: driver}
}

package guestnet

import (
	"net"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Device is a VF of the pod, and how its interface in the guest is to be.
// MAC, PortGUID or PCI must be known.
type Device struct {
	// Claim and Request are the pod's names of where it comes from; they are
	// empty for an entry of a config file.
	Claim, Request string
	// Name is "<pool>/<device>", or the entry's place in the config file.
	Name string
	// MAC is the VF's, nil when it is not known.
	MAC net.HardwareAddr
	// PortGUID is that of an InfiniBand VF, nil for any other.
	PortGUID net.HardwareAddr
	// PCI is the function's address in the guest, nil when it is not known. It is
	// used where no interface has the MAC or the port GUID.
	PCI *pci.Address
	// Network is what is asked.
	Network v1alpha1.GuestNetwork
}

// String names the device for a message: "device node-1/vf-0000-3b-02-1
// (claim nic, request vf)".
func (d *Device) String() string {
	if d.Claim == "" {
		return "device " + d.Name
	}
	return "device " + d.Name + " (claim " + d.Claim + ", request " + d.Request + ")"
}

// sought says by what the interface is looked for.
func (d *Device) sought() string {
	var by []string
	if d.MAC != nil {
		by = append(by, "MAC "+d.MAC.String())
	}
	if d.PortGUID != nil {
		by = append(by, "port GUID "+d.PortGUID.String())
	}
	if d.PCI != nil {
		by = append(by, "PCI address "+d.PCI.String())
	}
	return strings.Join(by, " or ")
}

package inventory

import (
	"context"
	"errors"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// readManagers finds out which of the functions manage NVSwitches. If no GPU of the node has such NVSwitches, it reads nothing: the device
// takes time for each word of its vital product data. The data don't change while the device is on the bus.
func (s *scan) readManagers(ctx context.Context, fresh []*device.Function) error {
	if !s.hasManagedSwitches() {
		return nil
	}
	var asked []*device.Function
	for _, f := range fresh {
		if mayManage(f) {
			asked = append(asked, f)
		}
	}
	return spread(ctx, len(asked), func(i int) error {
		asked[i].Manager = s.manager(asked[i])
		return nil
	})
}

// mayManage reports whether a function may manage NVSwitches. VFs have no vital product data.
func mayManage(f *device.Function) bool {
	return f.Vendor == pci.VendorMellanox && f.VF == nil && !f.IsBridge()
}

// hasManagedSwitches reports whether a GPU of the node has its NVSwitches behind ConnectX functions.
func (s *scan) hasManagedSwitches() bool {
	has := func(f *device.Function) bool {
		return f.Vendor == pci.VendorNVIDIA && fabric.HasManagedSwitches(f.Device)
	}
	for _, f := range s.functions {
		if f != nil && has(f) {
			return true
		}
	}
	for i := range s.base.Functions {
		f := &s.base.Functions[i]
		if _, read := s.functions[f.Address]; !read && has(f) {
			return true
		}
	}
	return false
}

// unasked returns functions that may manage NVSwitches, whose vital product data was never read and which are not part of this scan. A GPU
// that makes them relevant appeared after them.
func (s *scan) unasked() []pci.Address {
	var addrs []pci.Address
	if !s.hasManagedSwitches() {
		return nil
	}
	for i := range s.base.Functions {
		f := &s.base.Functions[i]
		if _, read := s.functions[f.Address]; !read && f.Manager == nil && mayManage(f) {
			addrs = append(addrs, f.Address)
		}
	}
	return addrs
}

// identifierString is the tag that vital product data begin with (PCI_VPD_LRDT_ID_STRING in include/linux/pci.h).
const identifierString = 0x82

// manager reads the vital product data of one function. If they can't be read, the function may manage NVSwitches, and its data are read
// again when the function is read again.
func (s *scan) manager(f *device.Function) *device.SwitchManager {
	before, ok := s.base.Function(f.Address)
	if ok && before.Manager != nil && before.Manager.Unread == "" && sameDevice(f, before) {
		return before.Manager
	}
	data, err := s.fs.ProductData(f.Address)
	switch {
	case errors.Is(err, sysfs.ErrNoFunction): // it may be back before it is read again
		return &device.SwitchManager{Unread: "it left the bus"}
	case err != nil:
		return &device.SwitchManager{Unread: err.Error()}
	case len(data) > 0 && data[0] != identifierString: // all ones, as of a function that does not answer
		return &device.SwitchManager{Unread: "they do not begin as vital product data do"}
	}
	return &device.SwitchManager{Manages: fabric.ManagesSwitches(string(data))}
}

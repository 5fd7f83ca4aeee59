package inventory

import (
	"errors"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A rescan that is made [Lightly] keeps the facts that can't change while a device is on the bus: its revision, which capabilities it has
// and where, its NUMA node, and the link that it can have. It reads again everything that decides whether a claim can have the function,
// including the parts of capabilities that software can change.
//
// Two kinds of functions are read briefly, since no claim takes them. Of a bridge above a device, only the driver, the group and the
// registers count. Of the PF of a VF, only the driver, the number of VFs, the interfaces, the link and the errors count.

// kept is the previous state of a function, and how much of it a rescan may keep.
type kept struct {
	// before is the function's last known state; nil if nothing may be kept.
	before *device.Function
	// brief is set if the function is one that is read briefly.
	brief bool
}

// errOtherDevice says that there is another device at the address now, so that no fact of the former one may be kept.
var errOtherDevice = errors.New("the device at this address was replaced")

// of returns what may be kept of f, once it is known which device f is: nothing if it is another device than before.
func (k kept) of(f *device.Function) kept {
	if k.before == nil || !sameDevice(f, k.before) {
		return kept{}
	}
	return k
}

// is reports whether f, whose driver is known, is read briefly. A function with another driver than before is not: its children came with
// the driver.
func (k kept) is(f *device.Function) bool { return k.brief && f.Driver == k.before.Driver }

// isBridge reports whether f is a bridge that is read briefly.
func (k kept) isBridge(f *device.Function) bool {
	return k.is(f) && f.Class.Sub() == pci.ClassPCIBridge
}

// sameDevice reports whether a and b are the same kind of device, and nothing shows that the device left the bus in
// between. A device that comes back has a new inode in sysfs.
func sameDevice(a, b *device.Function) bool {
	return a.Inode == b.Inode && a.Vendor == b.Vendor && a.Device == b.Device && a.SubVendor == b.SubVendor && a.SubDevice == b.SubDevice &&
		a.Class == b.Class && a.Revision == b.Revision && a.Modalias == b.Modalias
}

// rereadHardware is readHardware of the same device as before.
func rereadHardware(f *device.Function, a *attributes, keep kept) {
	before := keep.before
	f.NUMANode, f.BARs, f.ROM = before.NUMANode, before.BARs, before.ROM
	f.Link, f.ResetMethods, f.FatalErrors = before.Link, before.ResetMethods, before.FatalErrors
	if keep.isBridge(f) {
		return
	}
	if f.VF == nil {
		f.Link = rereadLink(a, before.Link)
	}
	f.FatalErrors = readFatalErrors(a)
	if keep.is(f) {
		return
	}
	readMemory(f, a) // drivers resize BARs
	f.ResetMethods = a.words("reset_method")
}

// rereadLink reads the width of a link, which shows whether it is up, and the rest if the width has changed.
func rereadLink(a *attributes, before *device.Link) *device.Link {
	if before != nil && width(a.answered("current_link_width")) == before.Width {
		return before
	}
	return readLink(a)
}

// readBrief keeps the children and uses of a function, and reads only its interfaces again: VFs are selected by them.
func readBrief(f *device.Function, a *attributes, before *device.Function) {
	f.Children, f.Uses, f.PortSpeed = before.Children, before.Uses, before.PortSpeed
	if f.Class.Sub() != pci.ClassPCIBridge {
		f.Children.Net = sorted(a.list("net"))
	}
}

// rereadPF reads the number of VFs. If their number is the same, their addresses are too, so it is enough to look at the last VF and the
// one after it.
func rereadPF(f *device.Function, a *attributes, before *device.PF) {
	pf := *before
	n := len(pf.VFs)
	if n == 0 || a.link(virtfn(n-1)) != pf.VFs[n-1].String() || a.link(virtfn(n)) != "" {
		pf.VFs = readVFs(a)
	}
	pf.NumVFs = readNumVFs(f, a, len(pf.VFs))
	f.PF = &pf
}

// briefly reports whether a function was read briefly.
func (s *scan) briefly(f *device.Function) bool { return s.keeps(f.Address).of(f).is(f) }

// keeps returns what may be kept of a function.
func (s *scan) keeps(a pci.Address) kept {
	if !s.light {
		return kept{}
	}
	before, ok := s.base.Function(a)
	if !ok {
		return kept{}
	}
	return kept{before: before, brief: before.Class.Sub() == pci.ClassPCIBridge || before.PF != nil && !s.asked[a]}
}

package inventory

import (
	"errors"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A [Lightly] made rescan keeps what a device has for as long as it is there: its revision, which capabilities it has and
// where, its NUMA node, and the link that it can have. Whatever decides whether a claim can have the function is read
// again, what software can switch in its capabilities included.
//
// Two kinds of functions are read briefly, since no claim takes them: bridges above a device, of which the driver, the
// group and the registers count, and the PF of a VF, of which the driver, the number of VFs, the interfaces, the link
// and the errors count.

// kept is what may be kept of a function.
type kept struct {
	// before is its last known state, nil if there is none.
	before *device.Function
	// brief is set for one that is read briefly.
	brief bool
}

// errOtherDevice says that a function is not the device that it was: nothing may be kept of it.
var errOtherDevice = errors.New("the device at this address was replaced")

// of returns what may be kept of f, now that it is known what f is.
func (k kept) of(f *device.Function) kept {
	if k.before == nil || !sameDevice(f, k.before) {
		return kept{}
	}
	return k
}

// is reports whether f, whose driver is known, is read briefly. What hangs on it came with its driver.
func (k kept) is(f *device.Function) bool { return k.brief && f.Driver == k.before.Driver }

// isBridge reports whether f is a bridge that is read briefly.
func (k kept) isBridge(f *device.Function) bool {
	return k.is(f) && f.Class.Sub() == pci.ClassPCIBridge
}

// sameDevice reports whether a and b are one kind of device, and have been on the bus all the time, as far as that can be
// seen.
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

// readBrief keeps what hangs on a function and uses it, except for its interfaces: VFs are selected by them.
func readBrief(f *device.Function, a *attributes, before *device.Function) {
	f.Children, f.Uses, f.PortSpeed = before.Children, before.Uses, before.PortSpeed
	if f.Class.Sub() != pci.ClassPCIBridge {
		f.Children.Net = sorted(a.list("net"))
	}
}

// rereadPF reads the number of VFs. The addresses of as many VFs are the same, so that one look at the last and one
// beyond it is enough.
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

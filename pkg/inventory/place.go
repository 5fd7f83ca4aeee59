package inventory

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// placeOf finds a function's root bus and the bridges above it in its place in
// the device tree:
//
//	sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0
//	sys/devices/platform/bus@0/pci0002:00/0002:00:00.0/0002:01:00.0
//	sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0
//
// The root is the last that is named, so that the domain behind a VMD
// controller has its own root and not the controller's.
func placeOf(where string) (root string, upstream []pci.Address) {
	for element := range strings.SplitSeq(where, "/") {
		if isRoot(element) {
			root, upstream = element, nil
			continue
		}
		if a, err := pci.ParseAddress(element); err == nil {
			upstream = append(upstream, a)
		}
	}
	if len(upstream) < 2 { // the function itself, or a place made by hand
		return root, nil
	}
	return root, upstream[:len(upstream)-1]
}

// isRoot reports whether an element names a root bus, "pciDDDD:BB".
func isRoot(element string) bool {
	domainAndBus, ok := strings.CutPrefix(element, "pci")
	if !ok {
		return false
	}
	// An address is a root bus' name with a device and a function.
	_, err := pci.ParseAddress(domainAndBus + ":00.0")
	return err == nil
}

// lastAddress returns the function that a place in the device tree belongs to.
func lastAddress(where string) (pci.Address, bool) {
	for {
		i := strings.LastIndexByte(where, '/')
		if a, err := pci.ParseAddress(where[i+1:]); err == nil {
			return a, true
		}
		if i < 0 {
			return pci.Address{}, false
		}
		where = where[:i]
	}
}

// place finds the lowest switch above f: the nearest bridge that is a switch's
// upstream port. Where a bridge on the way can't be read, the nearest is not
// known, and nothing is said.
func (s *scan) place(f *device.Function) {
	f.Switch = nil
	for i := len(f.Upstream) - 1; i >= 0; i-- {
		bridge := s.function(f.Upstream[i])
		if bridge == nil || bridge.Capabilities.Express == nil && bridge.Capabilities.Truncated {
			return
		}
		if e := bridge.Capabilities.Express; e != nil && e.Type == pci.UpstreamPort {
			f.Switch = &f.Upstream[i]
			return
		}
	}
}

// number gives a VF its index: its place in its PF's list.
func (s *scan) number(f *device.Function) {
	if f.VF == nil {
		return
	}
	f.VF.Index = -1
	if pf := s.function(f.VF.PF); pf != nil && pf.PF != nil {
		f.VF.Index = slices.Index(pf.PF.VFs, f.Address)
	}
	if f.VF.Index < 0 {
		f.VF.Index = s.rank(f)
	}
}

// rank counts the VFs of the same PF before f. The kernel makes a VF first and
// the PF's link to it then; until then this is its index, since VFs appear in
// the order of index and address.
func (s *scan) rank(f *device.Function) int {
	n := 0
	for _, other := range s.functions {
		if other != nil && precedes(other, f) {
			n++
		}
	}
	for i := range s.base.Functions {
		other := &s.base.Functions[i]
		if _, read := s.functions[other.Address]; !read && precedes(other, f) {
			n++
		}
	}
	return n
}

// precedes reports whether other is a VF of f's PF and comes before f.
func precedes(other, f *device.Function) bool {
	return other.VF != nil && other.VF.PF == f.VF.PF && other.Address.Compare(f.Address) < 0
}

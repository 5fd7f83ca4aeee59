package isolation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Reset methods. All but HotReset are the kernel's own words in sysfs'
// reset_method (Documentation/ABI/testing/sysfs-bus-pci).
const (
	DeviceSpecific = "device_specific"
	ACPI           = "acpi"
	FLR            = "flr"
	AFFLR          = "af_flr"
	Bus            = "bus"
	CXLBus         = "cxl_bus"
	PM             = "pm"
	// HotReset is a secondary bus reset of all functions below one bridge,
	// asked for through VFIO_DEVICE_PCI_HOT_RESET with proof of ownership; the
	// kernel offers "bus" in sysfs only for a function that is alone there.
	HotReset = "vfio_hot_reset"
)

// Reset is a way to reset a function and what it takes along.
type Reset struct {
	Method string `json:"method"`
	// Set holds every function that the reset touches, the function itself
	// included, by address.
	Set []pci.Address `json:"set"`
}

// Resets returns the ways to reset f whose reset set lies within what is taken
// with f (see [AssignmentSet]), best first: what the device's own quirk or the
// firmware offers, function level resets, resets of the whole bus, and last
// the power cycle "pm", which need not clear device memory (the kernel tries
// pm before bus: pci_reset_fn_methods in drivers/pci/pci.c). A method that the
// operator struck from reset_method is not among them. Nil means none.
//
// VFs of f itself are not counted in a set: taking a PF removes them.
func Resets(s *device.Snapshot, f *device.Function) []Reset {
	var resets []Reset
	for _, method := range []string{DeviceSpecific, ACPI, FLR, AFFLR, Bus, CXLBus, HotReset, PM} {
		if set, ok := resetSet(s, f, method); ok {
			resets = append(resets, Reset{Method: method, Set: set})
		}
	}
	return resets
}

// resetSet returns what a reset of f by the method touches, and false where
// the method is not to be had.
func resetSet(s *device.Snapshot, f *device.Function, method string) ([]pci.Address, bool) {
	switch method {
	case HotReset:
		return hotResetSet(s, f)
	case Bus, CXLBus:
		return []pci.Address{f.Address}, f.CanReset(method) && len(sharers(s, f)) <= 1
	}
	return []pci.Address{f.Address}, f.CanReset(method)
}

// hotResetSet returns the functions that share f's bus where VFIO can reset
// them together: all must be bound to VFIO then, so all must be taken, and
// there must be no bridge among them (vfio_pci_dev_set_resettable in
// drivers/vfio/pci/vfio_pci_core.c). A function that is alone on its bus has
// "bus" in reset_method if its bridge can reset it at all.
func hotResetSet(s *device.Snapshot, f *device.Function) ([]pci.Address, bool) {
	set := addressesOf(sharers(s, f))
	if len(set) < 2 {
		return nil, false
	}
	taken := addressesOf(AssignmentSet(s, f))
	for _, addr := range set {
		if !slices.Contains(taken, addr) {
			return nil, false
		}
	}
	return set, true
}

// sharers returns the functions below the bridge right above f, f included
// and f's own VFs left out, by address; nil for a function on a root bus.
//
// A bridge forwards one range of bus numbers (secondary to subordinate), so
// what is below it is one run in order of address.
func sharers(s *device.Snapshot, f *device.Function) []*device.Function {
	if len(f.Upstream) == 0 {
		return nil
	}
	bridge := f.Upstream[len(f.Upstream)-1]
	self, _ := slices.BinarySearchFunc(s.Functions, f.Address, func(g device.Function, a pci.Address) int {
		return g.Address.Compare(a)
	})
	first, end := self, self
	for first > 0 && slices.Contains(s.Functions[first-1].Upstream, bridge) {
		first--
	}
	for end < len(s.Functions) && slices.Contains(s.Functions[end].Upstream, bridge) {
		end++
	}
	var below []*device.Function
	for i := first; i < end; i++ {
		if g := &s.Functions[i]; g.VF == nil || g.VF.PF != f.Address {
			below = append(below, g)
		}
	}
	return below
}

// resettable checks that the function can be cleaned between tenants.
func (j *judgement) resettable() {
	offered := strings.Join(j.f.ResetMethods, " ")
	seen := j.saw(attribute(j.f.Address, "reset_method"), offered)
	resets := Resets(j.s, j.f)
	if len(resets) == 0 {
		j.reason(j.noReset(seen))
		return
	}
	j.v.Reset = &resets[0]
	if resets[0].Method == PM {
		j.note(Reason{
			Code: WeakReset, Severity: High, Evidence: seen,
			Text: fmt.Sprintf("%s can only be reset by power management (D3hot to D0), which need not clear its memory", j.f.Address),
			Fix:  Fix(WeakReset),
		})
	}
}

// noReset says why f can't be reset, naming who stands in the way of a reset
// of the bus.
func (j *judgement) noReset(seen []Evidence) Reason {
	r := Reason{
		Code: NoReset, Severity: Critical, Evidence: seen,
		Text: fmt.Sprintf("%s offers no reset: the kernel knows none, or they were struck from reset_method", j.f.Address),
		Fix:  noResetFix(attribute(j.f.Address, "reset_method")),
	}
	taken := addressesOf(AssignmentSet(j.s, j.f))
	for _, other := range sharers(j.s, j.f) {
		if !slices.Contains(taken, other.Address) {
			r.Culprit = new(other.Address)
			r.Text = fmt.Sprintf("%s has no reset of its own, and a reset of its bus would hit %s, which does not go with it", j.f.Address, describe(other))
			r.Fix = "use a device with FLR, or move one of the two to a slot of its own"
			return r
		}
	}
	return r
}

package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Op is the operation of a step.
type Op string

// Operations. Steps with Unbind, Override, Probe or SetValue have an inverse.
const (
	// Load loads the kernel module Value, or the modules for the modalias Value ("pci:v..."). It concerns no single
	// function, and is not undone.
	Load Op = "load"
	// Unbind takes the function from DriverBefore.
	Unbind Op = "unbind"
	// Override sets driver_override from Former to Value; empty is "not set".
	Override Op = "override"
	// Probe asks the kernel to bind the function. The driver that binds it must be DriverAfter.
	Probe Op = "probe"
	// Reset resets every function of Set by the method Value.
	Reset Op = "reset"
	// ConfigureVF makes the PF set Value on its VF.
	ConfigureVF Op = "impose"
	// SetValue has a provider bring Setting from Former to Value; see [Setting].
	SetValue Op = "setValue"
	// TakeAddress takes the addresses of a VF from the pool Value, and
	// ReturnAddress returns them.
	TakeAddress   Op = "takeAddress"
	ReturnAddress Op = "returnAddress"
)

// Step is one change of the node. It is so small that one look at sysfs can verify it.
type Step struct {
	Operation Op `json:"operation"`
	// Address is the function; the zero address for Load.
	Address pci.Address `json:"address,omitzero"`
	// DriverBefore and DriverAfter are the kernel drivers bound to the function before and after the step; empty for
	// none.
	DriverBefore string `json:"driverBefore"`
	DriverAfter  string `json:"driverAfter"`
	// Value is the argument of the step: module, override or reset method.
	Value string `json:"value,omitempty"`
	// Former is the override, or the value of a provider's setting, that Value replaces.
	Former string `json:"former,omitempty"`
	// Provider and Setting name what a SetValue changes.
	Provider string `json:"provider,omitempty"`
	Setting  string `json:"setting,omitempty"`
	// Set is the reset set of a Reset.
	Set []pci.Address `json:"set,omitempty"`
}

// Inverse returns the step that undoes s, or false if there is none.
func (s Step) Inverse() (Step, bool) {
	inv := Step{Address: s.Address, DriverBefore: s.DriverAfter, DriverAfter: s.DriverBefore}
	switch s.Operation {
	case Unbind:
		inv.Operation = Probe
	case Probe:
		inv.Operation = Unbind
	case Override:
		inv.Operation, inv.Value, inv.Former = Override, s.Former, s.Value
	case SetValue:
		inv.Operation, inv.Value, inv.Former = SetValue, s.Former, s.Value
		inv.Provider, inv.Setting = s.Provider, s.Setting
	default:
		// Other steps have no inverse: modules stay loaded, for example, and a reset can't be undone.
		return Step{}, false
	}
	return inv, true
}

// String returns the step as a phrase: "unbind 0000:3b:00.0 from nvidia".
func (s Step) String() string {
	switch s.Operation {
	case Load:
		return "load module " + s.Value
	case Unbind:
		return fmt.Sprintf("unbind %s from %s", s.Address, s.DriverBefore)
	case Override:
		if s.Value == "" {
			return fmt.Sprintf("clear driver_override of %s", s.Address)
		}
		return fmt.Sprintf("set driver_override of %s to %s", s.Address, s.Value)
	case Probe:
		return fmt.Sprintf("probe %s for %s", s.Address, s.DriverAfter)
	case Reset:
		return fmt.Sprintf("reset %s by %s", s.Address, s.Value)
	case ConfigureVF:
		return fmt.Sprintf("have the PF of %s set %s", s.Address, s.Value)
	case SetValue:
		return fmt.Sprintf("set %s of %s to %s (%s)", s.Setting, s.Address, s.Value, s.Provider)
	case TakeAddress:
		return fmt.Sprintf("take addresses for %s from pool %s", s.Address, s.Value)
	case ReturnAddress:
		return fmt.Sprintf("give the addresses of %s back to pool %s", s.Address, s.Value)
	}
	return string(s.Operation) + " " + s.Address.String()
}

// Binding is how the kernel binds a function: its driver and the override
// that steers the next probe. Empty strings mean none.
type Binding struct {
	Driver   string `json:"driver"`
	Override string `json:"override"`
}

// Transition returns the steps that take a function from one binding to another; none if they are equal. Unbind comes
// first and probe last, so that the steps back are the inverses in reverse order. Undo, recovery and release all are
// transitions to the original binding.
//
// There is one exception: a binding whose override names another driver than the bound one, for example because an
// operator set the override for the next probe. Then the probe needs an override with the name of the driver to bind,
// and the wanted override is set after the probe.
func Transition(addr pci.Address, from, to Binding) []Step {
	var steps []Step
	now := from
	if from.Driver != to.Driver && from.Driver != "" {
		steps = append(steps, Step{Operation: Unbind, Address: addr, DriverBefore: from.Driver})
		now.Driver = ""
	}
	probing := from.Driver != to.Driver && to.Driver != ""
	if probing && to.Override != "" && to.Override != to.Driver {
		steps, now = override(steps, addr, now, to.Driver)
	} else {
		// The override must be right before the probe: with an override, the kernel binds the named driver and no
		// other, whatever IDs match (drivers/pci/pci-driver.c pci_match_device).
		steps, now = override(steps, addr, now, to.Override)
	}
	if probing {
		steps = append(steps, Step{Operation: Probe, Address: addr, DriverAfter: to.Driver})
		now.Driver = to.Driver
	}
	// This adds a step only in the exception above.
	steps, _ = override(steps, addr, now, to.Override)
	return steps
}

// override adds the step that sets the override, unless it is set.
func override(steps []Step, addr pci.Address, now Binding, value string) ([]Step, Binding) {
	if now.Override == value {
		return steps, now
	}
	steps = append(steps, Step{
		Operation: Override, Address: addr, DriverBefore: now.Driver, DriverAfter: now.Driver,
		Value: value, Former: now.Override,
	})
	now.Override = value
	return steps, now
}

package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Op is the operation of a step.
type Op string

// Operations. Unbind, Override and Probe are steps with an inverse.
const (
	// Load loads the kernel module Value, or those that serve the modalias
	// Value ("pci:v..."); it concerns no single function and is not undone.
	Load Op = "load"
	// Unbind takes the function from DriverBefore.
	Unbind Op = "unbind"
	// Override sets driver_override from Former to Value; empty is "not set".
	Override Op = "override"
	// Probe asks the kernel to bind the function; DriverAfter must win.
	Probe Op = "probe"
	// Reset resets every function of Set by the method Value.
	Reset Op = "reset"
	// ConfigureVF has the PF of a VF impose Value on it.
	ConfigureVF Op = "impose"
	// TakeAddress takes the addresses of a VF from the pool Value, and
	// ReturnAddress gives them back.
	TakeAddress   Op = "takeAddress"
	ReturnAddress Op = "returnAddress"
)

// Step is one change of the node. Steps are small enough that each can be
// verified by one look at sysfs.
type Step struct {
	Operation Op `json:"operation"`
	// Address is the function; the zero address for Load.
	Address pci.Address `json:"address,omitzero"`
	// DriverBefore and DriverAfter are the kernel drivers bound to the function
	// before and after the step, empty for none.
	DriverBefore string `json:"driverBefore"`
	DriverAfter  string `json:"driverAfter"`
	// Value is what the step writes: module, override or reset method.
	Value string `json:"value,omitempty"`
	// Former is the override that Value replaces.
	Former string `json:"former,omitempty"`
	// Set is the reset set of a Reset.
	Set []pci.Address `json:"set,omitempty"`
}

// Inverse returns the step that takes s back, and false where there is none.
func (s Step) Inverse() (Step, bool) {
	inv := Step{Address: s.Address, DriverBefore: s.DriverAfter, DriverAfter: s.DriverBefore}
	switch s.Operation {
	case Unbind:
		inv.Operation = Probe
	case Probe:
		inv.Operation = Unbind
	case Override:
		inv.Operation, inv.Value, inv.Former = Override, s.Former, s.Value
	default:
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

// Transition returns the steps that take a function from one binding to
// another; none when they are equal. Unbind comes first and probe last, so
// that the steps of the way back are the inverses in reverse order: undo,
// recovery and release all are transitions to the original binding.
//
// The one exception is a binding whose override names another driver than the
// bound one (somebody set it for the next probe): the probe needs the override
// to name its own driver, so that the wanted one follows it.
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
		steps, now = override(steps, addr, now, to.Override)
	}
	if probing {
		steps = append(steps, Step{Operation: Probe, Address: addr, DriverAfter: to.Driver})
		now.Driver = to.Driver
	}
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

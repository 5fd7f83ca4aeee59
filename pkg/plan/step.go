package plan

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
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
	// ConfigureVF makes the PF set Value on its VF.
	ConfigureVF Op = "impose"
	// TakeAddress takes the addresses of a VF from the pool Value, and
	// ReturnAddress returns them.
	TakeAddress   Op = "takeAddress"
	ReturnAddress Op = "returnAddress"
)

// Step is one change of the node, small enough to be verified by one look at sysfs.
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
	// Former is the override that Value replaces.
	Former string `json:"former,omitempty"`
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

// Transition returns the steps that take a function from one binding to another; none if they are equal. Unbind comes
// first and probe last, so that the steps back are the inverses in reverse order. Undo, recovery and release all are
// transitions to the original binding.
//
// There is one exception: a binding whose override names another driver than the bound one, for example because an
// operator set it for the next probe. Then the probe needs an override with its own driver's name first, and the wanted
// override follows it.
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
	// Only in the exception above is the override still another one.
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

// StepsFor returns the steps of phases, in order, for functions that are at a place when the first phase begins.
func (p *Plan) StepsFor(from Place, phases ...Phase) []Step {
	w := walk{plan: p, steps: []Step{}, now: map[pci.Address]Binding{}}
	for i := range p.Functions {
		fn := &p.Functions[i]
		w.now[fn.Address] = fn.at(from)
	}
	for _, phase := range phases {
		w.take(phase)
	}
	return w.steps
}

// at returns the binding of a function at a place.
func (fn *Function) at(place Place) Binding {
	switch {
	case place == AtOriginal:
		return fn.Original
	case place == AtPrepared && fn.Endpoint != nil:
		return *fn.Endpoint
	}
	return fn.Target
}

// walk collects steps and tracks the binding of each function.
type walk struct {
	plan  *Plan
	steps []Step
	now   map[pci.Address]Binding
}

func (w *walk) take(phase Phase) {
	switch phase {
	case LoadModules:
		for _, module := range w.plan.Modules {
			w.add(Step{Operation: Load, Value: module})
		}
	case Bind:
		w.bind(func(fn *Function) *Binding { return &fn.Target })
	case ResetBefore:
		w.reset(w.plan.ResetsBefore)
	case ResetAfter, ResetForHost:
		w.reset(w.plan.Resets())
	case ConfigureVFs:
		w.configureVFs()
	case BindEndpoints:
		w.bind(func(fn *Function) *Binding { return fn.Endpoint })
	case RebindEndpoints:
		w.bind(endpointTo(func(fn *Function) *Binding { return &fn.Target }))
	case UnbindEndpoints:
		w.bind(endpointTo(func(*Function) *Binding { return &Binding{} }))
	case Restore:
		w.restore()
	case TakeAddresses:
		w.lease(TakeAddress)
	case ReturnAddresses:
		w.lease(ReturnAddress)
	case Measure, WriteSpec, RemoveSpec:
	}
}

func (w *walk) add(steps ...Step) { w.steps = append(w.steps, steps...) }

// bind brings functions to their wanted bindings, and leaves out those without one.
func (w *walk) bind(wanted func(*Function) *Binding) {
	for i := range w.plan.Functions {
		if to := wanted(&w.plan.Functions[i]); to != nil {
			w.bindOne(w.plan.Functions[i].Address, *to)
		}
	}
}

func (w *walk) bindOne(a pci.Address, to Binding) {
	w.add(Transition(a, w.now[a], to)...)
	w.now[a] = to
}

// endpointTo limits a wanted binding to physical endpoints.
func endpointTo(wanted func(*Function) *Binding) func(*Function) *Binding {
	return func(fn *Function) *Binding {
		if fn.Endpoint == nil {
			return nil
		}
		return wanted(fn)
	}
}

// restore brings the functions back to their original bindings, the last one first.
func (w *walk) restore() {
	for _, fn := range slices.Backward(w.plan.Functions) {
		// Settings first: a VF's host driver reads the MAC address when it binds.
		if fn.RestoresVF() {
			w.add(fn.ConfigureStep(&fn.VF.Original))
		}
		w.bindOne(fn.Address, fn.Original)
	}
}

func (w *walk) configureVFs() {
	for i := range w.plan.Functions {
		if fn := &w.plan.Functions[i]; fn.VF != nil {
			w.add(fn.ConfigureStep(&fn.VF.Want))
		}
	}
}

func (w *walk) reset(resets []isolation.Reset) {
	for _, r := range resets {
		w.add(w.plan.ResetStep(r))
	}
}

func (w *walk) lease(op Op) {
	for i := range w.plan.Devices {
		d := &w.plan.Devices[i]
		if d.Lease == nil {
			continue
		}
		s := d.LeaseStep(op)
		s.DriverBefore = w.now[d.Address].Driver
		s.DriverAfter = s.DriverBefore
		w.add(s)
	}
}

// RestoresVF reports whether the VF had settings that have to be set again.
func (fn *Function) RestoresVF() bool {
	return fn.VF != nil && fn.VF.Original != (device.VFSettings{})
}

// Resets returns the resets after the tenant, each once.
func (p *Plan) Resets() []isolation.Reset {
	var all []isolation.Reset
	for _, d := range p.Devices {
		for _, r := range d.Resets {
			same := func(o isolation.Reset) bool { return o.Method == r.Method && slices.Equal(o.Set, r.Set) }
			if !slices.ContainsFunc(all, same) {
				all = append(all, r)
			}
		}
	}
	return all
}

// ConfigureStep returns the step in which the PF of the VF at fn sets the settings.
func (fn *Function) ConfigureStep(to *device.VFSettings) Step {
	return Step{Operation: ConfigureVF, Address: fn.Address, DriverBefore: fn.Target.Driver, DriverAfter: fn.Target.Driver, Value: to.String()}
}

// ResetStep returns the step for the reset r, with the functions on the drivers for the VM.
func (p *Plan) ResetStep(r isolation.Reset) Step {
	s := Step{Operation: Reset, Address: r.Set[0], Value: r.Method, Set: r.Set}
	if fn, ok := p.Function(r.Set[0]); ok {
		s.DriverBefore, s.DriverAfter = fn.Target.Driver, fn.Target.Driver
	}
	return s
}

// Phase is one kind of work on all functions or devices of a plan that need it. The lists of phases that [Preparation]
// and the other functions return are the only place that defines the order of effects: package prepare executes them,
// recovery resumes them, and a dry run prints their steps (see [Plan.StepsFor]).
type Phase string

// Phases. Those without steps change files or nothing.
const (
	// LoadModules loads the plan's kernel modules.
	LoadModules Phase = "loadModules"
	// Bind brings every function to its target.
	Bind Phase = "bind"
	// ResetBefore resets the functions that are not proven clean since an earlier tenant.
	ResetBefore Phase = "resetBefore"
	// ConfigureVFs makes the PFs apply the settings of the VFs.
	ConfigureVFs Phase = "configureVFs"
	// Measure records the registers against which the next reset is proven. It has no steps.
	Measure Phase = "measure"
	// TakeAddresses takes the addresses of VFs from their pools.
	TakeAddresses Phase = "takeAddresses"
	// BindEndpoints brings physical endpoints to their kernel drivers.
	BindEndpoints Phase = "bindEndpoints"
	// WriteSpec writes the CDI spec, RemoveSpec removes it. They have no steps.
	WriteSpec  Phase = "writeSpec"
	RemoveSpec Phase = "removeSpec"
	// RebindEndpoints brings physical endpoints back to their targets. UnbindEndpoints unbinds them from every driver.
	RebindEndpoints Phase = "rebindEndpoints"
	UnbindEndpoints Phase = "unbindEndpoints"
	// ResetAfter resets the functions that the tenant's VM could reach, and proves them clean.
	ResetAfter Phase = "resetAfter"
	// ResetForHost resets the same functions before a host driver gets them, without a proof.
	ResetForHost Phase = "resetForHost"
	// Restore brings every function back to its original binding, and a VF to its original settings.
	Restore Phase = "restore"
	// ReturnAddresses returns addresses to their pools.
	ReturnAddresses Phase = "returnAddresses"
)

// Preparation returns the phases of a Prepare.
func Preparation() []Phase {
	// Resets follow Bind: a function is never reset below a host driver that uses it. Measure follows resets and
	// settings, because the reset after the tenant is compared with its values. WriteSpec ends the list: from then
	// on a VM can get the devices.
	return []Phase{LoadModules, Bind, ResetBefore, ConfigureVFs, Measure, TakeAddresses, BindEndpoints, WriteSpec}
}

// Undo returns the phases that undo a Prepare that did not complete. No tenant had the devices, so nothing is reset.
func Undo() []Phase {
	// RemoveSpec is first, so that no VM can get a device that is about to lose its driver. Addresses are last: nothing
	// uses them any more.
	return []Phase{RemoveSpec, UnbindEndpoints, Restore, ReturnAddresses}
}

// Cleaning returns the phases of an Unprepare up to the proof.
// RemoveSpec is first, as in Undo. RebindEndpoints takes endpoints from their kernel drivers, below which no function
// is reset.
func Cleaning() []Phase { return []Phase{RemoveSpec, RebindEndpoints, ResetAfter} }

// GivingBack returns the phases after the devices are proven clean.
func GivingBack() []Phase { return []Phase{Restore, ReturnAddresses} }

// Renewal returns the phases between two sandboxes of one claim.
// ConfigureVFs is before BindEndpoints, because a VF's driver reads the MAC address when it binds.
func Renewal() []Phase { return []Phase{RebindEndpoints, ResetAfter, ConfigureVFs, BindEndpoints} }

// ForHost returns the phases before [GivingBack] if a quarantine ends without a proof and a host driver gets a device.
func ForHost() []Phase { return []Phase{Bind, Measure, ResetForHost} }

// Retest returns the phases before [Cleaning] if the devices are quarantined.
func Retest() []Phase { return []Phase{Bind, Measure} }

// AfterReboot returns the phases for a claim of an earlier boot. The kernel has bound the functions at boot; only
// addresses remain from before.
func AfterReboot() []Phase { return []Phase{RemoveSpec, ReturnAddresses} }

// Place is where the functions of a plan are when a list of phases begins.
type Place int

// Places.
const (
	// AtOriginal is before the plan.
	AtOriginal Place = iota
	// AtTarget is on the drivers for the VM: bound, and without endpoints on kernel drivers.
	AtTarget
	// AtPrepared is where [Preparation] ends.
	AtPrepared
)

package plan

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// StepsFor returns the steps of the phases, in order. from is the place of the functions when the first phase begins.
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
	case ApplySettings:
		w.set(false)
	case Activate:
		w.set(true)
	case Deactivate:
		w.takeBack()
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
	// These phases have no steps, because a step changes the kernel's state or that of another program. These phases
	// only read, or write files of the plugin.
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
		w.unset(&fn, false)
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

// set makes the settings of all functions that are activations, or those that are not.
func (w *walk) set(activations bool) {
	for i := range w.plan.Functions {
		fn := &w.plan.Functions[i]
		for _, s := range fn.SelectSettings(activations) {
			w.add(fn.SetStep(s, s.Found, s.Want))
		}
	}
}

// takeBack takes back the activations, the last one first.
func (w *walk) takeBack() {
	for i := range slices.Backward(w.plan.Functions) {
		w.unset(&w.plan.Functions[i], true)
	}
}

// unset takes back the settings of fn that are activations, or those that are not, the last one first.
func (w *walk) unset(fn *Function, activations bool) {
	for _, s := range slices.Backward(fn.SelectSettings(activations)) {
		w.add(fn.SetStep(s, s.Want, s.Found))
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

// RestoresVF reports whether fn is a VF with former settings that have to be restored.
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

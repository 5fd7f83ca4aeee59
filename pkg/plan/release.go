package plan

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// Resets returns the resets that release p, each once.
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

// Sequence returns the steps of the way in, as [Plan.Steps] has them. Who
// settles what the planner left open (a VF's address) takes it anew.
func (p *Plan) Sequence() []Step {
	steps := []Step{}
	for _, module := range p.Modules {
		steps = append(steps, Step{Operation: Load, Value: module})
	}
	for _, fn := range p.Functions {
		steps = append(steps, Transition(fn.Address, fn.Original, fn.Target)...)
	}
	for _, r := range p.Cleanse {
		steps = append(steps, p.ResetStep(r))
	}
	for i := range p.Functions {
		if fn := &p.Functions[i]; fn.VF != nil {
			steps = append(steps, fn.ImposeStep(&fn.VF.Want))
		}
	}
	steps = append(steps, p.leaseSteps(TakeAddress, func(fn *Function) string { return fn.Target.Driver })...)
	for _, fn := range p.Functions {
		if fn.Endpoint != nil {
			steps = append(steps, Transition(fn.Address, fn.Target, *fn.Endpoint)...)
		}
	}
	return steps
}

// Release returns the steps of the way back, as a dry run shows them: the
// resets, then each function to its original binding, in reverse order, a VF
// with its original settings; addresses at last. A physical endpoint is back on
// its VFIO driver first: from its kernel driver, or from where Kata left it.
func (p *Plan) Release() []Step {
	steps := []Step{}
	for _, fn := range p.Functions {
		if fn.Endpoint != nil {
			steps = append(steps, Transition(fn.Address, *fn.Endpoint, fn.Target)...)
		}
	}
	for _, r := range p.Resets() {
		steps = append(steps, p.ResetStep(r))
	}
	for _, fn := range slices.Backward(p.Functions) {
		if fn.VF != nil && fn.VF.Original != (device.VFSettings{}) {
			steps = append(steps, fn.ImposeStep(&fn.VF.Original))
		}
		steps = append(steps, Transition(fn.Address, fn.Target, fn.Original)...)
	}
	return append(steps, p.leaseSteps(ReturnAddress, func(fn *Function) string { return fn.Original.Driver })...)
}

// ImposeStep returns the step in which the PF of the VF at fn imposes settings.
func (fn *Function) ImposeStep(to *device.VFSettings) Step {
	return Step{Operation: Impose, Address: fn.Address, DriverBefore: fn.Target.Driver, DriverAfter: fn.Target.Driver, Value: to.String()}
}

// ResetStep returns the step that the reset r is, taken while the functions
// are bound as p left them.
func (p *Plan) ResetStep(r isolation.Reset) Step {
	s := Step{Operation: Reset, Address: r.Set[0], Value: r.Method, Set: r.Set}
	if fn, ok := p.Function(r.Set[0]); ok {
		s.DriverBefore, s.DriverAfter = fn.Target.Driver, fn.Target.Driver
	}
	return s
}

package plan

import "slices"

// ResetFirst makes all resets of the plan due before its devices are used, so that they are proven clean again, even
// if they were before.
func (p *Plan) ResetFirst() {
	p.ResetsBefore = p.Resets()
	p.Steps = p.StepsFor(AtOriginal, Preparation()...)
}

// IsWarm reports whether the plan finds its functions ready: on the drivers for the VM, and proven clean if that is
// required. Such a plan changes no driver and resets nothing.
func (p *Plan) IsWarm() bool {
	return len(p.Modules) == 0 && len(p.ResetsBefore) == 0 && !slices.ContainsFunc(p.Functions, func(f Function) bool {
		return f.Original != f.Target || f.Endpoint != nil
	})
}

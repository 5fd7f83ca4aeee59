package plan

import "slices"

// ResetFirst makes all resets of the plan due before its devices are used, so that the devices are proven clean again
// even if they were proven clean before.
func (p *Plan) ResetFirst() {
	p.ResetsBefore = p.Resets()
	p.Steps = p.StepsFor(AtOriginal, Preparation()...)
}

// IsWarm reports whether the plan finds its functions ready: they are on the drivers for the VM, and no reset is due
// before the tenant. Such a plan changes no driver and resets nothing.
func (p *Plan) IsWarm() bool {
	return len(p.Modules) == 0 && len(p.ResetsBefore) == 0 && !slices.ContainsFunc(p.Functions, func(f Function) bool {
		return f.Original != f.Target || f.Endpoint != nil
	})
}

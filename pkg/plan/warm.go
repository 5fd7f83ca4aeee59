package plan

import "slices"

// ResetFirst makes all resets of the plan due before its devices are used, whatever is known of them: they are then
// proven clean.
func (p *Plan) ResetFirst() {
	p.ResetsBefore = p.Resets()
	p.Steps = p.StepsFor(AtOriginal, Preparation()...)
}

// IsWarm reports whether the plan finds its functions ready: on the drivers where its VM gets them, and proven clean
// as far as that is asked for. Then it changes no driver and resets nothing.
func (p *Plan) IsWarm() bool {
	return len(p.Modules) == 0 && len(p.ResetsBefore) == 0 && !slices.ContainsFunc(p.Functions, func(f Function) bool {
		return f.Original != f.Target || f.Endpoint != nil
	})
}

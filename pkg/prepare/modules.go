package prepare

import (
	"context"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// loadModules loads what a record's functions need. A driver that was not loaded
// before is known by its module's name only, and some register under another one:
// the module xe_vfio_pci brings the driver xe-vfio-pci. Where that is so, the record is written
// again, before anything is bound by it.
func (p *Preparer) loadModules(ctx context.Context, rec *journal.Record) error {
	for _, module := range rec.Plan.Modules {
		if err := p.step(ctx, rec.Plan.Claim, plan.Step{Operation: plan.Load, Value: module}); err != nil {
			return err
		}
	}
	if len(rec.Plan.Modules) == 0 {
		return nil
	}
	next := *rec
	changed, err := p.nameDrivers(&next.Plan)
	if err != nil || !changed {
		return err
	}
	next.Plan.Steps = next.Plan.StepsOf(plan.AtOriginal, plan.Preparation()...)
	if err := p.save(&next, journal.Preparing, ""); err != nil {
		return err
	}
	*rec = next
	return nil
}

// nameDrivers gives a plan's drivers the names under which they are registered,
// and reports whether that changes it.
func (p *Preparer) nameDrivers(pl *plan.Plan) (changed bool, err error) {
	registered, err := p.FS.ReadDir("sys/bus/pci/drivers")
	if err != nil {
		return false, fmt.Errorf("claim %s: read the names of the drivers that were loaded: %w", pl.Claim, err)
	}
	named := func(b plan.Binding) plan.Binding {
		driver := registeredName(registered, b.Driver)
		if driver == b.Driver {
			return b
		}
		changed = true
		return plan.Binding{Driver: driver, Override: driver}
	}
	pl.Functions = slices.Clone(pl.Functions)
	for i := range pl.Functions {
		fn := &pl.Functions[i]
		fn.Target = named(fn.Target)
		if fn.Endpoint != nil {
			endpoint := named(*fn.Endpoint)
			fn.Endpoint = &endpoint
		}
	}
	return changed, nil
}

// registeredName returns the name of a registered driver that is called as the
// wanted one but for "-" and "_", and the wanted name where there is none.
func registeredName(registered []string, want string) string {
	if slices.Contains(registered, want) {
		return want
	}
	i := slices.IndexFunc(registered, func(d string) bool { return device.SameDriver(d, want) })
	if i < 0 {
		return want
	}
	return registered[i]
}

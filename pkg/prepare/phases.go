package prepare

import (
	"context"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// carryOut carries out phases in order, up to the first that fails. It may be repeated
// after a crash: each phase leaves alone what is done already.
func (p *Preparer) carryOut(ctx context.Context, rec *journal.Record, phases []plan.Phase) error {
	for _, phase := range phases {
		if err := p.effect(phase)(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// effect returns what carries a phase out.
func (p *Preparer) effect(phase plan.Phase) func(context.Context, *journal.Record) error {
	switch phase {
	case plan.LoadModules:
		return p.loadModules
	case plan.Bind:
		return p.bindAll
	case plan.ResetBefore:
		return p.resetBefore
	case plan.ConfigureVFs:
		return p.configureVFs
	case plan.Measure:
		return p.measure
	case plan.TakeAddresses:
		return p.takeAddresses
	case plan.BindEndpoints:
		return p.bindEndpoints
	case plan.WriteSpec:
		return p.writeSpec
	case plan.RemoveSpec:
		return p.removeSpec
	case plan.RebindEndpoints:
		return p.rebindEndpoints
	case plan.UnbindEndpoints:
		return p.unbindEndpoints
	case plan.ResetAfter:
		return p.resetAfter
	case plan.ResetForHost:
		return p.resetForHost
	case plan.Restore:
		return p.restore
	case plan.ReturnAddresses:
		return p.returnAddresses
	}
	return func(context.Context, *journal.Record) error {
		return fmt.Errorf("no effect is known for the phase %q", phase)
	}
}

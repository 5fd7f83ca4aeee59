package prepare

import (
	"context"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Reactivate makes lost activations of a prepared claim again. Activations are lost when the program that makes them
// restarts. Reactivate resets the functions first, unless a reset follows in any case before the next sandbox gets
// them. While a process may use the functions, it changes nothing, and returns an error that says why the pod must be
// restarted. It may be repeated, and does nothing if all activations are in force. It takes at most
// [Config.RecoverLimit], and returns a [NotPreparedError] if the claim is not prepared.
func (p *Preparer) Reactivate(ctx context.Context, uid string) error {
	ctx, cancel := p.order.InTime(ctx)
	defer cancel()
	return p.withPrepared(ctx, uid, func(_ *device.Snapshot, rec *journal.Record) error {
		return p.order.Reactivate(ctx, rec)
	})
}

// Reactivate does the work of [Preparer.Reactivate] on the caller's own copy of a record, and adds the proofs of the
// resets to it.
func (o *Order) Reactivate(ctx context.Context, rec *journal.Record) error {
	loss, err := o.Effects.LostActivation(ctx, rec)
	if err != nil || loss == nil {
		return err
	}
	snap, release, err := o.Effects.LockRecord(ctx, rec)
	if err != nil {
		return err
	}
	defer release()
	// An activation does not help a VM that runs already: the driver in the guest looks for it only when the driver
	// starts.
	if err := o.Effects.WaitUnheld(ctx, snap, rec, 0); effects.IsUse(err) {
		return fmt.Errorf("%w; it is made again when no process uses the device, so delete the pod, and let its controller start another one (%s)", loss, effects.OneLine(err))
	} else if err != nil {
		return err
	}
	if err := o.toTargets(ctx, snap, rec); err != nil {
		return err
	}
	if rec.Sandbox != nil { // the sandbox has ended, and renew resets the functions before the next sandbox gets them
		return o.Effects.Activate(ctx, rec)
	}
	return o.CarryOut(ctx, rec, plan.Reactivation())
}

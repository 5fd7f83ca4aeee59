package prepare

import (
	"context"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Reactivate makes the activations of a prepared claim again that were lost, because the program that makes them restarted. It resets the
// functions first, unless the next sandbox gets them after a reset in any case. While a process may use them, it changes nothing, and
// returns why the pod must be restarted. It may be repeated, and does nothing if all activations are in force. It takes at most
// [Config.RecoverLimit], and returns a [NotPreparedError] if the claim is not prepared.
func (p *Preparer) Reactivate(ctx context.Context, uid string) error {
	ctx, cancel := p.order.InTime(ctx)
	defer cancel()
	return p.withPrepared(ctx, uid, func(_ *device.Snapshot, rec *journal.Record) error {
		return p.order.Reactivate(ctx, rec)
	})
}

// Reactivate is [Preparer.Reactivate] for a record of the caller's own, which gets the proofs of the resets.
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
	// An activation below a running VM helps nobody: the driver in the guest looks for it when it starts only.
	if err := o.Effects.WaitUnheld(ctx, snap, rec, 0); effects.IsUse(err) {
		return fmt.Errorf("%w; it is made again when no process uses the device, so delete the pod, and let its controller start another one (%s)", loss, effects.OneLine(err))
	} else if err != nil {
		return err
	}
	if err := o.toTargets(ctx, snap, rec); err != nil {
		return err
	}
	if rec.Sandbox != nil { // it has ended, and the next one gets the functions after a reset: see renew
		return o.Effects.Activate(ctx, rec)
	}
	return o.CarryOut(ctx, rec, plan.Reactivation())
}

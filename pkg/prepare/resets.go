package prepare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// resetBefore executes the resets that are due before the record's tenant gets the functions. It adds the proofs of
// these resets to the record, and removes the marks of the functions. Functions that can't be proven clean are
// quarantined. The functions are on their targets.
//
// A proof of resetBefore says that the kernel reset the function, and that the function answers as before the reset.
// The registers from before the function's last tenant can't be the baseline: they may be of another boot, in which
// firmware placed the BARs elsewhere. The baseline is measured and written before the first reset only, because a later
// call may have to continue with it.
func (o *Order) resetBefore(ctx context.Context, rec *journal.Record) error {
	if len(rec.Plan.ResetsBefore) == 0 {
		return nil
	}
	if !isResettingBefore(rec) {
		if err := o.Effects.Measure(ctx, rec); err != nil {
			return err
		}
		if err := o.Effects.Keep(rec); err != nil {
			return err
		}
	}
	if err := o.afterResets(ctx, rec, o.Effects.ResetAll(ctx, rec, rec.Plan.ResetsBefore)); err != nil {
		return err
	}
	return o.liftMarks(ctx, rec)
}

// liftMarks removes the marks of the functions that were proven clean for the record. It runs after the resets: a crash
// before it leaves the marks, which costs only another reset.
func (o *Order) liftMarks(ctx context.Context, rec *journal.Record) error {
	for _, proof := range rec.Proofs {
		for _, a := range proof.Set {
			if err := o.Effects.ProvenClean(ctx, rec, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// resetAfter executes the resets that are due after a tenant, and adds their proofs to the record. Functions that can't
// be proven clean are quarantined.
func (o *Order) resetAfter(ctx context.Context, rec *journal.Record) error {
	o.Effects.Stop(ctx, rec)
	return o.afterResets(ctx, rec, o.Effects.ResetAll(ctx, rec, rec.Plan.Resets()))
}

// activate makes the record's activations. If an activation requires a reset first, activate takes back the ones that
// were made, resets the functions, and tries once more. No VM has the functions yet. The order is that of
// [plan.Renewal], because endpoints are on their kernel drivers here too, and resets may undo the settings.
func (o *Order) activate(ctx context.Context, rec *journal.Record) error {
	err := o.Effects.Activate(ctx, rec)
	if _, again := errors.AsType[*bind.ResetFirstError](err); !again || ctx.Err() != nil {
		return err
	}
	for _, then := range []func(context.Context, *journal.Record) error{
		o.Effects.Deactivate, o.Effects.RebindEndpoints, o.resetAfter, o.liftMarks,
		o.Effects.ConfigureVFs, o.Effects.ApplySettings, o.Effects.BindEndpoints, o.Effects.Activate,
	} {
		if next := then(ctx, rec); next != nil {
			return fmt.Errorf("%w; after that: %w", err, next)
		}
	}
	return nil
}

// deactivate takes the record's activations back. If that fails after a tenant, the device is quarantined: it may still
// be joined to other devices, and a device is not reset while its activation is in force. The next try continues
// instead if ctx has ended, or if the program is away and the release is younger than awayLimit.
func (o *Order) deactivate(ctx context.Context, rec *journal.Record) error {
	err := o.Effects.Deactivate(ctx, rec)
	if isAway(err) && (rec.State == journal.Releasing || rec.State == journal.Quarantined) {
		err = o.deactivateWhenBack(ctx, rec)
	}
	switch {
	// While the claim is being prepared no VM has had the device, so there is nothing to quarantine. The record stays, and
	// the next try repeats the deactivation.
	case err == nil, rec.State == journal.Preparing:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("the deactivation was interrupted (%w) and is repeated: %w", context.Cause(ctx), err)
	case isAway(err) && !isLate(rec):
		return fmt.Errorf("claim %s: %w; its devices stay with it, and the next try continues from here", rec.Plan.Claim, err)
	}
	return o.quarantine(ctx, rec, errors.Join(err, o.Effects.ReturnAddresses(ctx, rec)))
}

const (
	// awayPause is the pause between two looks at a program that is away.
	awayPause = 200 * time.Millisecond
	// awayLimit is how long a release waits for such a program, over all tries of the release. A restart of the program
	// takes seconds. After the limit the devices are quarantined, so that the pod can end.
	awayLimit = 10 * time.Minute
)

func isAway(err error) bool {
	_, away := errors.AsType[*bind.AwayError](err)
	return away
}

// isLate reports whether a release began longer than awayLimit ago. If the time of its begin can't be read, it counts
// as late.
func isLate(rec *journal.Record) bool {
	since, err := time.Parse(time.RFC3339, rec.Since)
	return rec.State == journal.Releasing && (err != nil || time.Since(since) > awayLimit)
}

// deactivateWhenBack repeats the deactivation of a release until the program that makes it is back. It gives up after
// [Config.HolderWait], which also limits the wait for holders.
func (o *Order) deactivateWhenBack(ctx context.Context, rec *journal.Record) error {
	tick := time.NewTicker(awayPause)
	defer tick.Stop()
	for end := time.Now().Add(o.Config.HolderWait); ; {
		err := o.Effects.Deactivate(ctx, rec)
		if !isAway(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// afterResets decides how to continue after resets. A reset without a result proves nothing: the record stays, the next
// try resets the device again, and until then no other claim gets the device. In a quarantine, addresses are returned
// too, because the VM has ended. If they can't be returned, the end of the quarantine tries it again.
func (o *Order) afterResets(ctx context.Context, rec *journal.Record, r effects.ResetResult) error {
	switch {
	case r.Verdict == effects.Clean:
		return nil
	case r.Verdict == effects.Unfinished:
		err := fmt.Errorf("claim %s: %w; the next try continues from here", rec.Plan.Claim, r.Err)
		if r.InKernel {
			return &resetInKernelError{Err: err}
		}
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("the reset was interrupted (%w) and is repeated: %w", context.Cause(ctx), r.Err)
	case r.Verdict == effects.Unrecorded:
		return r.Err // the next try repeats the resets and records them
	}
	return o.quarantine(ctx, rec, errors.Join(r.Err, o.Effects.ReturnAddresses(ctx, rec)))
}

// resetInKernelError says that a reset runs in the kernel. The record must stay unchanged: the next try uses the result
// of that reset.
type resetInKernelError struct{ Err error }

func (e *resetInKernelError) Error() string { return e.Err.Error() }

func (e *resetInKernelError) Unwrap() error { return e.Err }

package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Order executes the phases of plans on records, and decides what follows from an error.
// Its callers hold the claim's lock.
type Order struct {
	Config *Config
	// Effects carry out single phases.
	Effects  *effects.Set
	Planning *Planning
}

func newOrder(c *Config) *Order {
	return &Order{Config: c, Effects: effects.New(c.Parts, c.Node), Planning: &Planning{config: c}}
}

// abandon undoes a failed Prepare. It returns the cause of the failure, joined with the error of the undo if there is
// one.
func (o *Order) abandon(ctx context.Context, rec *journal.Record, cause error) error {
	// The kubelet cancels ctx at its own timeout, which is often why Prepare failed. The undo must still run.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Config.UndoLimit)
	defer cancel()
	o.Effects.MakeRoom()
	rec.Baseline, rec.Proofs = nil, nil // no later call may continue with undone steps
	if err := o.Undo(ctx, rec, cause); err != nil {
		keep := o.Effects.Save(rec, journal.Preparing, effects.OneLine(err))
		return errors.Join(cause, &UndoError{Claim: rec.Plan.Claim, Err: errors.Join(err, keep)})
	}
	return cause
}

// UndoError says that a failed Prepare could not be undone completely. The record stays, and the next Prepare,
// Unprepare or Recover tries again.
type UndoError struct {
	Claim plan.Ref
	Err   error
}

func (e *UndoError) Error() string {
	return fmt.Sprintf("claim %s: undo: %s; the next try, or `kata-vfio-plugin unprepare %s`, continues from here", e.Claim, effects.OneLine(e.Err), e.Claim.UID)
}

func (e *UndoError) Unwrap() error { return e.Err }

// Undo brings all functions back to their original bindings, returns their addresses to the pools, and removes the
// record and the CDI spec. It may be repeated. The cause is the reason for the undo; it is nil after a crash.
func (o *Order) Undo(ctx context.Context, rec *journal.Record, cause error) error {
	if err := o.CarryOut(ctx, rec, plan.Undo()); err != nil {
		return err
	}
	why := "the operation was interrupted"
	if cause != nil {
		why = effects.OneLine(cause)
	}
	return o.Effects.End(ctx, rec, ledger.CodeUndone, why)
}

// Reaffirm checks the bindings of a prepared claim's functions, and writes the claim's CDI spec again, because the
// spec's directory does not survive a reboot. It binds a function again that somebody moved, if no process has the
// function open and the node does not need it. It also repeats changed VF settings, and makes lost activations again:
// see [Order.Reactivate]. If a function is gone, Reaffirm changes nothing and returns an [effects.GoneError].
func (o *Order) Reaffirm(ctx context.Context, rec *journal.Record) error {
	moved, err := o.Effects.IsMoved(ctx, rec)
	if err != nil {
		return err
	}
	if moved {
		if err := o.rebind(ctx, rec); err != nil {
			return err
		}
	}
	for _, again := range []func(context.Context, *journal.Record) error{o.Effects.ApplyVFs, o.Effects.ApplySettings} {
		if err := again(ctx, rec); err != nil {
			return err
		}
	}
	if err := o.Reactivate(ctx, rec.Clone()); err != nil {
		return err
	}
	// The spec is last, as in Preparation: a runtime that finds it may pass the device on at once.
	return o.Effects.WriteSpec(ctx, rec)
}

// ReaffirmBound is [Order.Reaffirm] for a record of policy "bound" or of a warm device. If the device is gone, it ends
// the record and returns false, so that another device at the address can get its own record.
func (o *Order) ReaffirmBound(ctx context.Context, rec *journal.Record) (stands bool, err error) {
	err = o.Reaffirm(ctx, rec)
	if _, gone := errors.AsType[*effects.GoneError](err); gone {
		return false, o.TakeOff(ctx, rec)
	}
	return true, err
}

// rebind brings moved functions of a prepared claim back to their bindings.
func (o *Order) rebind(ctx context.Context, rec *journal.Record) error {
	snap, release, err := o.Effects.LockRecord(ctx, rec)
	if err != nil {
		return err
	}
	defer release()
	if lent, err := o.isLent(snap, rec); lent || err != nil {
		return err
	}
	if err := o.Effects.Unused(ctx, snap, rec, rec.Plan.AddressesIn(snap)); err != nil {
		return err
	}
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if want, ours := effects.FindBinding(rec, fn); ours {
			if err := o.Effects.Drive(ctx, rec, fn, want); err != nil {
				return err
			}
		}
	}
	return o.Effects.Settle(ctx, rec.Plan.Claim)
}

// isLent reports whether a claim uses a function of a record of policy "bound". Only functions of such records are lent
// to claims. The binding of a lent function is decided by the claim's record: a function for a physical endpoint waits
// on its kernel driver. isLent returns an error if the record of a claim that may use the function is damaged, because
// the answer is unknown then.
func (o *Order) isLent(snap *device.Snapshot, rec *journal.Record) (bool, error) {
	if rec.Kind != journal.Bound {
		return false, nil
	}
	holdings, damaged := o.Planning.holdings(snap)
	lent := slices.ContainsFunc(rec.Plan.AddressesIn(snap), func(a pci.Address) bool {
		h, held := holdings[a]
		return held && !h.Bound
	})
	if !lent && damaged != "" {
		return false, fmt.Errorf("claim %s: its device stays where it is, because the record %s can't be read and may be that of a claim that uses it: "+
			"repair or remove that file once no VM uses the device", rec.Plan.Claim, damaged)
	}
	return lent, nil
}

// InTime returns ctx with the time limit for one record, which is [Config.RecoverLimit].
func (o *Order) InTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Config.RecoverLimit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.Config.RecoverLimit, fmt.Errorf("not done within %s: a later try continues", o.Config.RecoverLimit))
}

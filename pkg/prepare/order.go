package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
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
	*Config
	effects.Set
	Planning *Planning
}

func newOrder(c *Config) *Order {
	return &Order{Config: c, Set: effects.New(&c.Parts, c.Node), Planning: &Planning{Config: c}}
}

// Next says what is to do with a record after work on it.
type Next int

// What is to do next.
const (
	// Nothing says that the work is done.
	Nothing Next = iota
	// Retry says that the work failed. It may be tried again, or taken back.
	Retry
	// Join says that a reset is in the kernel. The record must stay as it is: the next try
	// takes the result of that reset.
	Join
	// Quarantine says that the record is a quarantine now, which ends by a proof or an operator.
	Quarantine
)

// Outcome is what work on a record has come to.
type Outcome struct {
	Next Next
	// Err is nil where nothing is to do, and a [QuarantinedError] for a quarantine.
	Err error
}

// failed is the outcome of work that ended with err, which may be nil.
func failed(err error) Outcome {
	if err == nil {
		return Outcome{}
	}
	return Outcome{Next: Retry, Err: err}
}

// Begin prepares a claim that has no record.
func (o *Order) Begin(ctx context.Context, req *claim.Request, kind journal.Kind) (*journal.Record, error) {
	return o.begin(ctx, req, kind, func(*plan.Plan) {})
}

// Warm binds devices without a claim, as policy "bound" does, and also resets them and proves them clean.
func (o *Order) Warm(ctx context.Context, req *claim.Request) (*journal.Record, error) {
	return o.begin(ctx, req, journal.Bound, (*plan.Plan).ResetFirst)
}

// begin is Begin with a change of the plan.
func (o *Order) begin(ctx context.Context, req *claim.Request, kind journal.Kind, change func(*plan.Plan)) (*journal.Record, error) {
	if err := o.canBegin(ctx); err != nil {
		return nil, err
	}
	if kind == journal.Claim {
		if err := o.served(ctx); err != nil {
			return nil, err
		}
	}
	snap, err := o.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	snap, release, err := o.Locking.LockRequest(ctx, req, snap)
	if err != nil {
		return nil, err
	}
	defer release()
	pl, err := o.Planning.Make(req, snap)
	if err != nil {
		return nil, err
	}
	change(pl)
	rec := &journal.Record{Kind: kind, BootID: snap.Host.BootID, Plan: *pl}
	if err := o.announce(ctx, snap, rec); err != nil {
		return nil, err
	}
	if err := o.Recording.RecordSoon(ctx, rec.Plan.Claim, ledger.Event{Type: ledger.Prepare, Devices: effects.DevicesOf(snap, rec)}); err != nil {
		return nil, errors.Join(err, o.Recording.Forget(rec)) // nothing is done yet
	}
	return o.conclude(ctx, rec, o.carryIn(ctx, rec))
}

// conclude returns the record of a Prepare by its outcome. What has failed is taken back.
func (o *Order) conclude(ctx context.Context, rec *journal.Record, out Outcome) (*journal.Record, error) {
	switch out.Next {
	case Nothing:
		return rec, nil
	case Retry:
		return nil, o.abandon(ctx, rec, out.Err)
	case Join, Quarantine:
	}
	return nil, out.Err
}

// announce decides what the plan left open and writes the record. An address must
// differ from those of all records, so a lock is held from its choice until the record
// is on disk.
func (o *Order) announce(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if rec.Plan.HasVF() {
		release, err := o.Locking.Lock(ctx, rec.Plan.Claim, []effects.Lock{{Name: "vf-addresses", Kept: true}})
		if err != nil {
			return err
		}
		defer release()
	}
	if err := o.Binding.ResolveEndpoints(snap, rec); err != nil {
		return err
	}
	if err := o.Configuring.Resolve(ctx, rec); err != nil {
		return err
	}
	if err := o.Leasing.Find(rec); err != nil {
		return err
	}
	return o.intend(ctx, snap, rec)
}

// intend writes the record and looks for holders at the same time: both must be
// done before the first step, and both take a while. If there is a holder, it removes
// the record.
func (o *Order) intend(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	ref, addrs := rec.Plan.Claim, rec.Plan.Addresses() // save changes rec
	held := make(chan error, 1)
	go func() { held <- o.Guard.Untaken(ctx, snap, ref, addrs) }()
	saveErr := o.Recording.Save(rec, journal.Preparing, "")
	heldErr := <-held
	if saveErr == nil && heldErr != nil {
		saveErr = o.Recording.Forget(rec)
	}
	return errors.Join(heldErr, saveErr)
}

// carryIn carries out the phases of a Prepare and completes the record. It may be repeated where
// a reset was cut off: what is done is left alone, and the reset is joined.
func (o *Order) carryIn(ctx context.Context, rec *journal.Record) Outcome {
	if out := o.CarryOut(ctx, rec, plan.Preparation()); out.Err != nil {
		return out
	}
	return failed(o.Recording.Complete(ctx, rec))
}

// resetBefore makes the resets that are due before the record's tenant, enters
// their proofs into the record and lifts the marks. What can't be proven clean
// is quarantined. The functions are on their targets.
//
// A proof here says that the kernel has reset the function and that it answers
// as before the reset: what it was before its last tenant may be of another
// boot, in which firmware placed its BARs elsewhere. So it is measured, and the record
// keeps that, before the first reset only: the next call may have to go on from there.
func (o *Order) resetBefore(ctx context.Context, rec *journal.Record) Outcome {
	if len(rec.Plan.ResetsBefore) == 0 {
		return Outcome{}
	}
	if !isResettingBefore(rec) {
		if err := o.Resetting.Measure(ctx, rec); err != nil {
			return failed(err)
		}
		if err := o.Recording.Keep(rec); err != nil {
			return failed(err)
		}
	}
	if out := o.afterResets(ctx, rec, o.Resetting.All(ctx, rec, rec.Plan.ResetsBefore)); out.Err != nil {
		return out
	}
	for _, proof := range rec.Proofs {
		for _, a := range proof.Set {
			if err := o.Resetting.ProvenClean(rec, a); err != nil {
				return failed(err)
			}
		}
	}
	return Outcome{}
}

// abandon undoes a failed Prepare and returns both its cause and what could not be undone.
func (o *Order) abandon(ctx context.Context, rec *journal.Record, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.UndoLimit)
	defer cancel()
	o.Recording.MakeRoom()
	rec.Baseline, rec.Proofs = nil, nil // no later call may continue with what is undone
	if err := o.Undo(ctx, rec, cause); err != nil {
		keep := o.Recording.Save(rec, journal.Preparing, effects.OneLine(err))
		return errors.Join(cause, &UndoError{Claim: rec.Plan.Claim, Err: errors.Join(err, keep)})
	}
	return cause
}

// UndoError says that a failed Prepare could not be taken back in full. The
// record stays, and the next Prepare, Unprepare or Recover tries again.
type UndoError struct {
	Claim plan.Ref
	Err   error
}

func (e *UndoError) Error() string {
	return fmt.Sprintf("claim %s: undo: %s; the next try, or `kata-vfio-plugin unprepare %s`, continues from here", e.Claim, effects.OneLine(e.Err), e.Claim.UID)
}

func (e *UndoError) Unwrap() error { return e.Err }

// Undo brings all functions back to their original bindings, gives addresses
// back, and removes record and spec. It may be repeated. The cause is nil where
// it was a crash.
func (o *Order) Undo(ctx context.Context, rec *journal.Record, cause error) error {
	if err := o.CarryOut(ctx, rec, plan.Undo()).Err; err != nil {
		return err
	}
	why := "the operation was interrupted"
	if cause != nil {
		why = effects.OneLine(cause)
	}
	return o.Recording.End(ctx, rec, ledger.CodeUndone, why)
}

// Reaffirm checks that a prepared claim's functions are where they belong, and writes
// its spec again, since the spec's directory does not outlive a reboot. A function that
// was moved is bound again if no process has it open and the node does not need it. Settings of VFs that were changed
// are set again. It returns an [effects.GoneError] where a function is gone, and changes nothing then.
func (o *Order) Reaffirm(ctx context.Context, rec *journal.Record) error {
	moved, err := o.Binding.Moved(ctx, rec)
	if err != nil {
		return err
	}
	if moved {
		if err := o.rebind(ctx, rec); err != nil {
			return err
		}
	}
	if err := o.Configuring.Apply(ctx, rec); err != nil {
		return err
	}
	return o.Spec.Write(ctx, rec)
}

// ReaffirmBound is [Order.Reaffirm] of a record of policy "bound" or of a warm device. Where the device is gone the record
// ends, and it returns false: another device that is at the address may get a record of its own.
func (o *Order) ReaffirmBound(ctx context.Context, rec *journal.Record) (stands bool, err error) {
	err = o.Reaffirm(ctx, rec)
	if _, gone := errors.AsType[*effects.GoneError](err); gone {
		return false, o.TakeOff(ctx, rec).Err
	}
	return true, err
}

// rebind brings moved functions of a prepared claim back to where they belong.
func (o *Order) rebind(ctx context.Context, rec *journal.Record) error {
	snap, release, err := o.Locking.LockRecord(ctx, rec)
	if err != nil {
		return err
	}
	defer release()
	if rec.Kind == journal.Bound && o.isLent(snap, rec) {
		return nil
	}
	if err := o.Guard.Unused(ctx, snap, rec, rec.Plan.AddressesIn(snap)); err != nil {
		return err
	}
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if want, ours := effects.BindingOf(rec, fn); ours {
			if err := o.Binding.Drive(ctx, rec, fn, want); err != nil {
				return err
			}
		}
	}
	return o.Recording.Settle(ctx, rec.Plan.Claim)
}

// isLent reports whether the claim uses a function that has a record of policy "bound". That record then decides about
// the binding: a function for a physical endpoint waits on its kernel driver.
func (o *Order) isLent(snap *device.Snapshot, rec *journal.Record) bool {
	holdings, _ := o.Planning.holdings(snap)
	return slices.ContainsFunc(rec.Plan.AddressesIn(snap), func(a pci.Address) bool {
		h, held := holdings[a]
		return held && !h.Bound
	})
}

// InTime cuts ctx short by the limit for one record.
func (o *Order) InTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.RecoverLimit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, o.RecoverLimit, fmt.Errorf("not done within %s: a later try continues", o.RecoverLimit))
}

// CarryOut carries out phases in order, up to the first that fails. It may be repeated
// after a crash: each phase leaves alone what is done already.
func (o *Order) CarryOut(ctx context.Context, rec *journal.Record, phases []plan.Phase) Outcome {
	for _, phase := range phases {
		if out := o.carryOut(ctx, rec, phase); out.Err != nil {
			return out
		}
	}
	return Outcome{}
}

func (o *Order) carryOut(ctx context.Context, rec *journal.Record, phase plan.Phase) Outcome {
	switch phase {
	case plan.ResetBefore:
		return o.resetBefore(ctx, rec)
	case plan.ResetAfter:
		return o.resetAfter(ctx, rec)
	default:
		return failed(o.effect(phase)(ctx, rec))
	}
}

// effect returns what carries out a phase that only succeeds or fails.
func (o *Order) effect(phase plan.Phase) func(context.Context, *journal.Record) error {
	switch phase {
	case plan.LoadModules:
		return o.Binding.LoadModules
	case plan.Bind:
		return o.Binding.BindAll
	case plan.ConfigureVFs:
		return o.Configuring.Configure
	case plan.Measure:
		return o.Resetting.Measure
	case plan.TakeAddresses:
		return o.Leasing.Take
	case plan.BindEndpoints:
		return o.Binding.BindEndpoints
	case plan.WriteSpec:
		return o.Spec.Write
	case plan.RemoveSpec:
		return o.Spec.Remove
	case plan.RebindEndpoints:
		return o.Binding.RebindEndpoints
	case plan.UnbindEndpoints:
		return o.Binding.UnbindEndpoints
	case plan.ResetForHost:
		return o.Resetting.ForHost
	case plan.Restore:
		return o.Binding.Restore
	case plan.ReturnAddresses:
		return o.Leasing.Return
	case plan.ResetBefore, plan.ResetAfter: // carryOut has them
	}
	return func(context.Context, *journal.Record) error {
		return fmt.Errorf("no effect is known for the phase %q", phase)
	}
}

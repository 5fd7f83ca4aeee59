package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// NotPreparedError says that the sandbox can't get the claim's devices. The claim has no record, its record has another
// state than Prepared, its record is of an earlier boot, or the claim is prepared for another pod.
type NotPreparedError struct {
	Claim plan.Ref
	// State is empty for a claim without a record.
	State journal.State
	// EarlierBoot marks a record from before the node's last start.
	EarlierBoot bool
	// PodUID is set if the claim is prepared, but not for the pod with that UID.
	PodUID string
}

func (e *NotPreparedError) Error() string {
	switch {
	case e.PodUID != "":
		return fmt.Sprintf("claim %s is not, or no longer, prepared for the pod with the UID %s", e.Claim, e.PodUID)
	case e.State == "":
		return fmt.Sprintf("claim %s is not prepared on this node", e.Claim)
	case e.EarlierBoot:
		return fmt.Sprintf("claim %s was prepared before the node last booted, and not since", e.Claim)
	}
	return fmt.Sprintf("claim %s is not prepared: it is %s", e.Claim, e.State)
}

// HandOver records that a sandbox gets the functions of a prepared claim. The VM may not have opened the functions yet.
// So from now on, the shim that requested them and the shim's descendants count as holders, until they end or the VM is
// known to run. A shim without a child counts for at most five minutes.
//
// There is no Unprepare between two sandboxes of one pod. If another sandbox had the functions, it must have ended, and
// HandOver resets the functions and proves them clean first. The first sandbox gets the functions if their activations
// are in force or can be made again: see [Preparer.Reactivate]. HandOver may be repeated for the same sandbox, and then
// only completes the sandbox's details. If to names a network namespace, the interfaces of physical endpoints move into
// it. HandOver returns a [NotPreparedError] if the claim went to another pod since the caller looked.
//
// HandOver writes the event to the ledger first. If the event can't be written, the sandbox gets nothing.
//
// Errors a caller may branch on: [NotPreparedError], [effects.GoneError], [effects.InUseError], [QuarantinedError],
// [effects.EvidenceError]. After an error the sandbox must not get the functions.
func (p *Preparer) HandOver(ctx context.Context, uid string, to journal.Sandbox) (err error) {
	ctx, end := p.order.Config.begun(ctx, Call{Kind: CallHandOver, Claim: plan.Ref{UID: uid}, Sandbox: to.ID})
	defer func() { end(Result{Err: err}) }()
	another := func(rec *journal.Record) bool { return rec.Sandbox.ID != to.ID && serves(rec, to.PodUID) }
	// Wait before the claim's lock is taken: see awaitFormer.
	if err := p.awaitFormer(ctx, uid, another, min(p.order.Config.HolderWait, handOverWait)); err != nil {
		return err
	}
	return p.withPrepared(ctx, uid, func(snap *device.Snapshot, rec *journal.Record) error {
		if !serves(rec, to.PodUID) {
			return &NotPreparedError{Claim: rec.Plan.Claim, State: rec.State, PodUID: to.PodUID}
		}
		if err := p.order.Effects.CheckFunctions(rec); err != nil {
			return err
		}
		had, err := p.succeed(ctx, rec, to.ID)
		if err != nil {
			return err
		}
		if next := join(had, to, p.order.Effects.Ticks()); had == nil || *had != next {
			rec.Sandbox = &next
			// The ledger is written before the record. After a crash between the two, the ledger names a sandbox that
			// did not get the functions, and Backfill closes that event. In the other order, a sandbox could have the
			// functions without an event.
			if err := p.order.Effects.Record(ctx, rec.Plan.Claim, effects.OpenEvent(snap, rec)); err != nil {
				return err
			}
			if err := p.order.Effects.Keep(rec); err != nil {
				return err
			}
		}
		if to.NetNS == "" {
			return nil
		}
		return p.order.Effects.PlaceEndpoints(ctx, rec)
	})
}

// succeed makes the functions of a record ready for a sandbox. If the record already has this sandbox, succeed returns
// it. For a new sandbox it returns nil, so that the sandbox starts with its own time and processes.
func (p *Preparer) succeed(ctx context.Context, rec *journal.Record, sandboxID string) (had *journal.Sandbox, err error) {
	switch {
	case rec.Sandbox == nil:
		return nil, p.order.Reactivate(ctx, rec)
	case rec.Sandbox.ID == sandboxID:
		return rec.Sandbox, nil
	}
	return nil, p.renew(ctx, rec) // writes the former sandbox's end to the ledger
}

// serves reports whether a claim is prepared for a pod. An empty podUID matches any pod.
func serves(rec *journal.Record, podUID string) bool {
	return podUID == "" || slices.ContainsFunc(rec.Plan.Claim.Pods, func(c claim.Pod) bool { return c.UID == podUID })
}

// join merges the known details of a sandbox with new ones, because no caller knows all of them: one knows the VMM,
// another the network namespace.
func join(had *journal.Sandbox, to journal.Sandbox, now uint64) journal.Sandbox {
	if had != nil {
		to.Since, to.Ticks = had.Since, had.Ticks
		to.NetNS = cmp.Or(to.NetNS, had.NetNS)
		if to.VMM == (journal.Process{}) {
			to.VMM = had.VMM
		}
		if to.Shim == (journal.Process{}) {
			to.Shim = had.Shim
		}
		to.PodUID = had.PodUID
	}
	if to.Since == "" {
		to.Since, to.Ticks = time.Now().UTC().Format(time.RFC3339), now
	}
	return to
}

// Renew makes a prepared claim's functions clean for the next sandbox after the sandbox with the given ID has ended. It
// waits for holders, resets the functions, and compares them with their baseline. If the claim's record does not name
// this sandbox, Renew does nothing, so it may be repeated. Its errors are those of [Preparer.HandOver].
func (p *Preparer) Renew(ctx context.Context, uid, sandboxID string) (proofs []isolation.Proof, err error) {
	ctx, end := p.order.Config.begun(ctx, Call{Kind: CallRenew, Claim: plan.Ref{UID: uid}, Sandbox: sandboxID})
	defer func() { end(Result{Err: err}) }()
	its := func(rec *journal.Record) bool { return rec.Sandbox.ID == sandboxID }
	if err := p.awaitFormer(ctx, uid, its, p.order.Config.HolderWait); err != nil {
		return nil, err
	}
	err = p.withPrepared(ctx, uid, func(_ *device.Snapshot, rec *journal.Record) error {
		if rec.Sandbox == nil || rec.Sandbox.ID != sandboxID {
			return nil
		}
		if err := p.renew(ctx, rec); err != nil {
			return err
		}
		rec.Sandbox, proofs = nil, rec.Proofs
		return p.order.Effects.Keep(rec)
	})
	return proofs, err
}

// handOverWait is how long [Preparer.HandOver] waits for the former sandbox of its pod to end. Kata's Rust runtime
// stops waiting for HandOver after ten seconds (pod-resources-rs: DEFAULT_POD_RESOURCES_TIMEOUT), of which the kubelet
// may take five. After such a timeout, the pod's Event would not name the reason.
const handOverWait = 4 * time.Second

// awaitFormer waits until no process has the functions of a prepared claim's former sandbox open, and returns an
// [effects.InUseError] if a process still does at the limit. It does not hold the claim's lock while it waits. So the
// next sandbox, which asks during the wait, learns which process has the functions, and not only that the claim is
// locked. awaitFormer ignores all other problems, such as a reset in progress: the caller finds them when it has the
// lock.
func (p *Preparer) awaitFormer(ctx context.Context, uid string, former func(*journal.Record) bool, limit time.Duration) error {
	rec, err := p.order.Effects.Journal.Load(uid)
	if err != nil || rec == nil || rec.State != journal.Prepared || rec.Sandbox == nil || !former(rec) {
		return nil //nolint:nilerr // see above
	}
	snap, err := p.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if used, ok := errors.AsType[*effects.InUseError](p.order.Effects.WaitUnheld(ctx, snap, rec, limit)); ok {
		return used
	}
	return nil
}

// withPrepared runs work on the latest snapshot and a copy of a prepared claim's
// record, under the claim's lock.
func (p *Preparer) withPrepared(ctx context.Context, uid string, work func(*device.Snapshot, *journal.Record) error) error {
	release, err := p.order.Effects.LockClaim(ctx, plan.Ref{UID: uid})
	if err != nil {
		return err
	}
	defer release()
	rec, err := p.order.Effects.Journal.Load(uid)
	if err != nil {
		return err
	}
	if rec == nil {
		return &NotPreparedError{Claim: plan.Ref{UID: uid}}
	}
	snap, err := p.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	thisBoot := rec.BootID == snap.Host.BootID
	switch {
	case rec.State == journal.Quarantined:
		return &QuarantinedError{Record: rec}
	case rec.State != journal.Prepared || !thisBoot:
		return &NotPreparedError{Claim: rec.Plan.Claim, State: rec.State, EarlierBoot: !thisBoot}
	}
	return work(snap, rec.Clone())
}

// renew resets a prepared record's functions. If functions can't be proven clean, they are quarantined, and the pod
// loses them. After a crash in the middle, the record still names the former sandbox, so that the next call resets the
// functions again.
func (p *Preparer) renew(ctx context.Context, rec *journal.Record) error {
	snap, release, err := p.order.Effects.LockRecord(ctx, rec)
	if err != nil {
		return err
	}
	defer release()
	if err := p.order.Effects.WaitUnheld(ctx, snap, rec, 0); err != nil { // awaitFormer has waited
		return err
	}
	if err := p.order.toTargets(ctx, snap, rec); err != nil {
		return err
	}
	// The former sandbox has no holder left and can't open the functions again, so its end is true before the reset, too.
	if err := p.order.Effects.Record(ctx, rec.Plan.Claim, effects.CloseEvent(rec)); err != nil {
		return err
	}
	return p.order.CarryOut(ctx, rec, plan.Renewal())
}

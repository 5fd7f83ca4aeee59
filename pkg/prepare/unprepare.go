package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// Unprepare takes a claim's functions back: it waits for holders, resets the
// functions, compares them with what they were, and gives them back to their
// drivers. It may be repeated, and a claim without a record is no error: its proofs
// are nil, and else one for each reset, none at all included.
//
// While a holder is left it returns an [InUseError], or a [LockedError] where
// somebody else's unbind waits for one, and nothing has changed.
// When a function can't be proven clean it returns a [QuarantinedError]: the
// tenant has lost it, and no other gets it. Unprepare of a quarantined claim
// tries the reset again. When addresses can't be given back to their pool it
// returns a [ReturnError], and the record stays for the next try.
func (p *Preparer) Unprepare(ctx context.Context, uid string) ([]isolation.Proof, error) {
	return p.unprepare(ctx, uid, nil)
}

// unprepare does so after a check of the record, which may be nil.
func (p *Preparer) unprepare(ctx context.Context, uid string, check func(context.Context, *journal.Record) error) ([]isolation.Proof, error) {
	release, err := p.lock(ctx, plan.Ref{UID: uid}, []Lock{claimLock(uid)})
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err := p.Journal.Load(uid)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, p.Specs.Remove(uid)
	}
	if check != nil {
		if err := check(ctx, rec); err != nil {
			return nil, err
		}
	}
	work := *rec
	err = p.takeOff(ctx, &work)
	if err == nil {
		p.refusals.forget(uid)
	}
	return append([]isolation.Proof{}, work.Proofs...), err // slices.Concat would return nil for none
}

// takeOff takes a record in any state to its end: functions on their original
// bindings, no spec, no record. The claim's lock is held.
func (p *Preparer) takeOff(ctx context.Context, rec *journal.Record) error {
	snap, release, err := p.lockRecord(ctx, rec)
	if err != nil {
		return err
	}
	defer release()
	return p.takeOffLocked(ctx, snap, rec)
}

// takeOffLocked is settle with the locks of the record's functions held.
func (p *Preparer) takeOffLocked(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	p.makeRoom()
	earlier := rec.BootID != snap.Host.BootID
	if earlier || rec.State != journal.Prepared {
		if err := p.backfill(ctx, snap, rec); err != nil {
			return err
		}
	}
	if earlier && rec.State != journal.Quarantined {
		return p.drop(ctx, rec)
	}
	if err := p.waitUnheld(ctx, snap, rec, p.HolderWait); err != nil {
		return err
	}
	switch rec.State {
	case journal.Preparing:
		return p.undo(ctx, rec, nil)
	case journal.Cleaned:
		return p.giveBack(ctx, rec)
	case journal.Quarantined:
		return p.retest(ctx, snap, rec)
	default:
		return p.release(ctx, rec)
	}
}

// retest tries the reset of a quarantine again. Where it outlived a reboot, its
// functions are with their host drivers and must come back for that.
func (p *Preparer) retest(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if err := p.untaken(ctx, snap, rec.Plan.Claim, rec.Plan.Addresses()); err != nil {
		return err
	}
	if rec.BootID != snap.Host.BootID {
		// Firmware may have placed its BARs elsewhere.
		rec.BootID, rec.Baseline = snap.Host.BootID, nil
		if err := p.rebase(ctx, rec); err != nil {
			return err
		}
	}
	if err := p.save(rec, journal.Quarantined, rec.Reason); err != nil {
		return err
	}
	if err := p.carryOut(ctx, rec, plan.Retest()); err != nil {
		return err
	}
	return p.release(ctx, rec)
}

// rebase has a record of an earlier boot go back to what this boot began with: by
// policy "bound" it would leave the functions on VFIO, where its standing record has
// ended, and give VFs addresses that they have no more.
func (p *Preparer) rebase(ctx context.Context, rec *journal.Record) error {
	rec.Plan.Functions = slices.Clone(rec.Plan.Functions)
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if p.isGone(fn.Address) {
			continue
		}
		var err error
		if fn.Original, err = p.Executor.Binding(ctx, fn.Address); err != nil {
			return err
		}
		if fn.VF == nil {
			continue
		}
		state, _, err := p.VFs.Read(ctx, *fn.PF, fn.VF.Index)
		if err != nil {
			return fmt.Errorf("claim %s: VF %s: %w", rec.Plan.Claim, fn.Address, err)
		}
		change := *fn.VF
		change.Original = restorable(state.Settings.Only(&change.Want))
		fn.VF = &change
	}
	return nil
}

// allGone reports whether all functions of a record have left the bus.
func (p *Preparer) allGone(rec *journal.Record) bool {
	left, err := p.present(rec.Plan.Addresses())
	return err == nil && len(left) == 0
}

// drop removes spec and record of an earlier boot. There is nothing to take
// back but addresses, which outlive it: this boot began with the kernel's own
// bindings. That the machine went down (perhaps by kexec) is no proof that the
// functions are clean.
func (p *Preparer) drop(ctx context.Context, rec *journal.Record) error {
	code, why := ledger.CodeUndone, "the node went down"
	if rec.State == journal.Prepared || rec.State == journal.Releasing {
		code, why = ledger.CodeUnproven, "the node went down before a reset"
		rec.Proofs = nil
		if err := p.mark(rec, why); err != nil {
			return err
		}
	}
	if err := p.carryOut(ctx, rec, plan.AfterReboot()); err != nil {
		return err
	}
	if rec.State == journal.Prepared && rec.Sandbox != nil {
		e := closeEvent(rec)
		e.Late, e.Reason = true, why
		if err := p.record(ctx, rec.Plan.Claim, e); err != nil {
			return err
		}
	}
	if rec.State == journal.Cleaned {
		code = endCode(rec)
	}
	return p.end(ctx, rec, code, why)
}

// release is the way back of a claim that was handed over.
func (p *Preparer) release(ctx context.Context, rec *journal.Record) error {
	quarantined := rec.State == journal.Quarantined
	if rec.State == journal.Prepared && rec.Sandbox != nil {
		if err := p.record(ctx, rec.Plan.Claim, closeEvent(rec)); err != nil {
			return err
		}
	}
	if err := p.save(rec, journal.Releasing, ""); err != nil {
		return err
	}
	if err := p.carryOut(ctx, rec, plan.Cleaning()); err != nil {
		return err
	}
	if err := p.mark(rec, "no reset was made: its class waives that, or it was off the bus"); err != nil {
		return err
	}
	if quarantined {
		if err := p.record(ctx, rec.Plan.Claim, ledger.Event{Type: ledger.Release, Devices: briefly(rec)}); err != nil {
			return err
		}
	}
	if err := p.save(rec, journal.Cleaned, ""); err != nil {
		return err
	}
	return p.giveBack(ctx, rec)
}

// resetAfter makes the resets that are due after a tenant, and enters their proofs into
// the record. What can't be proven clean is quarantined.
func (p *Preparer) resetAfter(ctx context.Context, rec *journal.Record) error {
	if err := p.resetAll(ctx, rec, rec.Plan.Resets()); err != nil {
		return p.failedReset(ctx, rec, err)
	}
	return nil
}

// failedReset is the end of a reset that failed for cause. One without a result
// says nothing of the device: the record as it is has it reset by whoever comes
// next, and keeps it from others until then. Addresses need not wait in a
// quarantine, since the VM is gone; what fails of that is tried again at its end.
func (p *Preparer) failedReset(ctx context.Context, rec *journal.Record, cause error) error {
	if _, unfinished := errors.AsType[*bind.UnfinishedError](cause); unfinished {
		return fmt.Errorf("claim %s: %w; the next try goes on from here", rec.Plan.Claim, cause)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("reset cut off (%w), it is made again: %w", context.Cause(ctx), cause)
	}
	if onlyEvidence(cause) {
		return cause // the resets are made again, and told
	}
	return p.quarantine(ctx, rec, errors.Join(cause, p.returnAddresses(ctx, rec)))
}

// quarantine keeps a record's functions from reuse, since a reset failed for
// cause, and returns the [QuarantinedError]. The spec is gone before the state
// is entered: nothing can give the functions to a VM any more.
func (p *Preparer) quarantine(ctx context.Context, rec *journal.Record, cause error) error {
	if err := p.removeSpec(ctx, rec); err != nil {
		return errors.Join(cause, err)
	}
	if err := p.save(rec, journal.Quarantined, oneLine(cause)); err != nil {
		return errors.Join(cause, err)
	}
	if err := p.record(ctx, rec.Plan.Claim, quarantineEvent(rec)); err != nil {
		cause = errors.Join(cause, err) // whoever looks at the quarantine next tells of it
	}
	return &QuarantinedError{Record: rec, Err: cause}
}

// giveBack brings clean functions to their original bindings, then gives the
// addresses back, which no VM has any more, and forgets them.
func (p *Preparer) giveBack(ctx context.Context, rec *journal.Record) error {
	if err := p.carryOut(ctx, rec, plan.GivingBack()); err != nil {
		return errors.Join(err, p.save(rec, journal.Cleaned, oneLine(err)))
	}
	return p.end(ctx, rec, endCode(rec), "")
}

// endCode is the code of a claim's end: none where all that its VM could reach is
// proven clean.
func endCode(rec *journal.Record) string {
	if slices.ContainsFunc(rec.Plan.Reachable(), func(a pci.Address) bool { return !isProven(rec, a) }) {
		return ledger.CodeUnproven
	}
	return ""
}

// reset resets what is left of one set. A function that has left the bus,
// before the reset or during it, has taken its state along: it needs no reset,
// and there is no proof of one.
func (p *Preparer) reset(ctx context.Context, rec *journal.Record, r isolation.Reset) (*isolation.Proof, error) {
	var err error
	if r.Set, err = p.present(r.Set); err != nil || len(r.Set) == 0 {
		return nil, err
	}
	step, start := rec.Plan.ResetStep(r), time.Now()
	proof, err := p.Executor.Reset(ctx, r, rec.Baseline, tenancyOf(rec))
	e := Event{Claim: rec.Plan.Claim, Phase: PhaseReset, Step: &step, Err: err, Took: time.Since(start)}
	if err == nil {
		e.Proof = &proof
	}
	p.Observe(e)
	if _, unfinished := errors.AsType[*bind.UnfinishedError](err); unfinished {
		return nil, err // its result is told when there is one
	}
	proof.Reset = r
	if tellErr := p.record(ctx, rec.Plan.Claim, resetEvent(&proof, err)); tellErr != nil {
		return nil, errors.Join(err, tellErr)
	}
	if err == nil {
		return &proof, nil
	}
	if left, lookErr := p.present(r.Set); lookErr == nil && len(left) == 0 {
		return nil, nil
	}
	return nil, err
}

// tenancyOf names whose traces the resets of a record in its present state clear.
// The result of a reset that was cut off counts for the same name only.
func tenancyOf(rec *journal.Record) string {
	sandbox := ""
	if rec.Sandbox != nil {
		sandbox = rec.Sandbox.ID
	}
	return strings.Join([]string{rec.ID(), string(rec.State), rec.Since, sandbox}, " ")
}

// present returns those of the functions that are still on the bus.
func (p *Preparer) present(addrs []pci.Address) ([]pci.Address, error) {
	var left []pci.Address
	for _, a := range addrs {
		there, err := p.FS.Exists(sysfs.FunctionPath(a))
		if err != nil {
			return nil, err
		}
		if there {
			left = append(left, a)
		}
	}
	return left, nil
}

// waitUnheld returns when no process has a function of the record open that is
// still with VFIO, and none can open one that was handed to it, or with an [InUseError] once the limit is over. Who opens a
// function that went back to its driver is none of our business.
//
// Holders that are all there again after a wait that saw one end can't be
// waited for: their PIDs are those of another PID namespace.
func (p *Preparer) waitUnheld(ctx context.Context, snap *device.Snapshot, rec *journal.Record, limit time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	claim, addrs := rec.Plan.Claim, onVFIO(snap, rec.Plan.Addresses())
	var last []vfio.Holder
	for {
		err := p.unused(ctx, snap, rec, addrs)
		var used *InUseError
		if !errors.As(err, &used) || wait.Err() != nil || slices.Equal(used.Holders, last) {
			return err
		}
		last = used.Holders
		waitErr := p.timed(claim, PhaseWait, func() error { return p.Holders.Wait(wait, used.Holders) })
		if waitErr != nil {
			return err
		}
	}
}

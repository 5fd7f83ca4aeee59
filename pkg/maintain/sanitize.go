package maintain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// Errors for requests of an operator about a sanitizing stage.
var (
	// ErrNoFailedStage says that no sanitizing stage of the function failed.
	ErrNoFailedStage = errors.New("no sanitizing stage of it failed, and its firmware has no change to accept")
	// ErrNotOnlyFirmware says that the function is not in quarantine only because of its firmware.
	ErrNotOnlyFirmware = errors.New("its stage did not end with changed firmware only, and nothing else can be accepted")
)

// mostInterrupted is how many stages in a row may be interrupted before the function is quarantined. It is limited so
// that nobody who can delete pods is able to hold a device back unnoticed.
const mostInterrupted = 3

// StageMarks returns the marks of functions that are not sanitized, by address.
func (m *Maintainer) StageMarks() ([]journal.SanitizeMark, error) {
	return m.order.Effects.Journal.Unsanitized()
}

// EndedStages returns, by address, the marks whose stage no longer has its device and is not decided yet. Call
// [Maintainer.ConcludeStage] for each.
func (m *Maintainer) EndedStages() ([]journal.SanitizeMark, error) {
	marks, err := m.StageMarks()
	if err != nil {
		return nil, err
	}
	var ended []journal.SanitizeMark
	for i := range marks {
		if marks[i].Stage == nil {
			continue
		}
		rec, err := m.order.Effects.Journal.Load(marks[i].Stage.Claim.UID)
		if err != nil {
			return nil, err
		}
		// The record is removed when the stage's claim is unprepared. So if there is no record, the stage's VM no
		// longer has the device.
		if rec == nil {
			ended = append(ended, marks[i])
		}
	}
	return ended, nil
}

// Accepted returns the accepted firmware measurements of a marked function, and those whose absence is accepted; none if the function was
// never measured.
func (m *Maintainer) Accepted(mark *journal.SanitizeMark) (accepted, missing []sanitize.Measurement, err error) {
	proof, err := m.proven(mark.Identity)
	return proof.Firmware, proof.Missing, err
}

// proven returns the last proof of a function; the zero value if there is none.
func (m *Maintainer) proven(id device.Identity) (journal.SanitizeProof, error) {
	proofs, err := m.order.Effects.Journal.Sanitized()
	if err != nil {
		return journal.SanitizeProof{}, err
	}
	proof, _ := journal.FindSanitized(proofs, id)
	return proof, nil
}

// ConcludeStage carries out the decision on an ended stage: a clean device becomes free, an interrupted stage is
// repeated, and any other device is quarantined. The decision is written to the ledger first, so that a crash after it
// can only repeat the event, but never lose it. image is the digest of the image that ran. It is not an error if the stage
// is decided already.
//
// Errors a caller may branch on: [effects.EvidenceError].
func (m *Maintainer) ConcludeStage(ctx context.Context, ended *journal.SanitizeMark, outcome sanitize.Outcome, image string) error {
	return m.withMark(ctx, ended, func(mark *journal.SanitizeMark) error {
		if mark.Stage == nil || mark.Stage.Claim.UID != ended.Stage.Claim.UID {
			return nil
		}
		if err := m.recordStage(ctx, mark, outcome, image); err != nil {
			return err
		}
		return m.settleStage(ctx, mark, outcome, image)
	})
}

// settleStage changes the mark as decided.
func (m *Maintainer) settleStage(ctx context.Context, mark *journal.SanitizeMark, outcome sanitize.Outcome, image string) error {
	stage := *mark.Stage
	mark.Stage = nil
	switch {
	case outcome.Verdict == sanitize.Clean:
		proof := newProof(mark, &stage, outcome.Result, image)
		// Former measurements are kept: if a result leaves a measurement out, the next measurement of that name must
		// not count as the device's first.
		former, err := m.proven(mark.Identity)
		if err != nil {
			return err
		}
		proof.Changed = sanitize.Accumulate(former.Changed, outcome.Changes, proof.Firmware)
		proof.Missing = sanitize.Lacking(former.Missing, proof.Firmware)
		proof.Firmware = sanitize.Merge(former.Firmware, proof.Firmware)
		return m.order.Effects.Journal.MarkSanitized(ctx, *proof)
	case outcome.Verdict == sanitize.Interrupted && mark.Interrupted+1 < mostInterrupted:
		mark.Interrupted++
	default:
		mark.Failed = &journal.FailedStage{Stage: stage, Verdict: outcome.Verdict, Reason: outcome.Reason}
		if outcome.Verdict == sanitize.Interrupted {
			mark.Failed.Reason = fmt.Sprintf("%d stages in a row were interrupted; the last one: %s", mostInterrupted, outcome.Reason)
		}
		if outcome.OnlyFirmware() {
			mark.Failed.Changes, mark.Failed.Proof = outcome.Changes, newProof(mark, &stage, outcome.Result, image)
		}
	}
	return m.order.Effects.Journal.MarkUnsanitized(ctx, *mark)
}

// newProof returns what a stage proved.
func newProof(mark *journal.SanitizeMark, stage *journal.Stage, result *sanitize.Result, image string) *journal.SanitizeProof {
	return &journal.SanitizeProof{
		Address: mark.Address, Identity: mark.Identity, Profile: stage.Profile, Image: image,
		Time: time.Now().UTC().Format(time.RFC3339), Checks: result.Checks, Firmware: result.Firmware,
	}
}

// recordStage writes the event of an ended stage.
func (m *Maintainer) recordStage(ctx context.Context, mark *journal.SanitizeMark, outcome sanitize.Outcome, image string) error {
	stage := mark.Stage
	e := stageEvent(mark)
	e.Claim = &ledger.Claim{UID: stage.Claim.UID, Namespace: stage.Claim.Namespace, Name: stage.Claim.Name}
	e.Pods = []ledger.Pod{{UID: stage.PodUID, Name: stage.Pod}}
	e.Sanitize.Profile, e.Sanitize.Image, e.Sanitize.Verdict = stage.Profile, image, string(outcome.Verdict)
	if outcome.Verdict != sanitize.Clean {
		e.Result, e.Reason = ledger.Failed, outcome.Reason
	}
	for _, change := range outcome.Changes {
		e.Sanitize.Changes = append(e.Sanitize.Changes, change.String())
	}
	if outcome.Result != nil {
		describeResult(e.Sanitize, outcome.Result)
	}
	return m.append(ctx, *e)
}

// stageEvent begins the event of a stage of the marked device.
func stageEvent(mark *journal.SanitizeMark) *ledger.Event {
	e := &ledger.Event{
		Type: ledger.Sanitize, Result: ledger.OK, Devices: []ledger.Device{{Address: mark.Address}}, Sanitize: &ledger.Sanitization{},
	}
	if mark.Claim.UID != "" {
		e.Sanitize.After = &ledger.Claim{UID: mark.Claim.UID, Namespace: mark.Claim.Namespace, Name: mark.Claim.Name}
	}
	return e
}

func describeResult(to *ledger.Sanitization, result *sanitize.Result) {
	for _, c := range result.Checks {
		to.Checks = append(to.Checks, ledger.SanitizeCheck{
			Name: c.Name, Method: c.Method, Verdict: string(c.Verdict), Bytes: c.Bytes, Seconds: c.Seconds, Reason: c.Reason,
		})
	}
	for _, f := range result.Firmware {
		to.Firmware = append(to.Firmware, ledger.FirmwareMeasurement{Name: f.Name, Algorithm: string(f.Algorithm), Value: f.Value})
	}
}

// append writes an event to the ledger that concerns no claim's record. It continues even if the caller gives up.
func (m *Maintainer) append(ctx context.Context, e ledger.Event) error {
	if m.order.Effects.Ledger == nil {
		return nil
	}
	err := m.order.Effects.Observe.Timed(plan.Ref{}, effects.PhaseLedger, func() error {
		_, err := m.order.Effects.Ledger.Append(context.WithoutCancel(ctx), e)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s of %s: %w", e.Type, e.Devices[0].Address, &effects.EvidenceError{Err: err})
	}
	return nil
}

// FailedStage returns the mark of a function whose stage failed; false if none did.
func (m *Maintainer) FailedStage(ctx context.Context, a pci.Address) (journal.SanitizeMark, bool, error) {
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return journal.SanitizeMark{}, false, err
	}
	marks, err := m.order.Effects.Journal.Unsanitized()
	if err != nil {
		return journal.SanitizeMark{}, false, err
	}
	mark := journal.Unsanitized(marks, snap)[a]
	if mark == nil || mark.Failed == nil {
		return journal.SanitizeMark{}, false, nil
	}
	return *mark, true, nil
}

// ClearStage ends the quarantine of a function whose stage failed, because an operator ordered it. The order is written
// to the ledger first. Then another stage runs. With WithoutProof, the function becomes free as it is; if its rule asks
// for a stage before each claim, a stage runs anyway.
//
// Errors a caller may branch on: [ErrNoFailedStage], [effects.EvidenceError].
func (m *Maintainer) ClearStage(ctx context.Context, a pci.Address, how Clearance) error {
	return m.withFailed(ctx, a, func(mark *journal.SanitizeMark) error {
		e := ledger.Event{Type: ledger.Clear, Result: ledger.OK, Devices: []ledger.Device{{Address: a}}, Reason: how.Reason, By: &how.By}
		if how.WithoutProof {
			e.Codes = []string{ledger.CodeUnproven}
		}
		if err := m.append(ctx, e); err != nil {
			return err
		}
		if how.WithoutProof {
			former, err := m.proven(mark.Identity)
			if err != nil {
				return err
			}
			return m.order.Effects.Journal.MarkSanitized(ctx, journal.SanitizeProof{
				// A spoiled proof proves nothing. It keeps the measurements with which the next stage is compared.
				Address: mark.Address, Identity: mark.Identity, Spoiled: true, Time: time.Now().UTC().Format(time.RFC3339),
				Firmware: former.Firmware, Missing: former.Missing, Changed: former.Changed,
			})
		}
		mark.Failed, mark.Interrupted = nil, 0
		return m.order.Effects.Journal.MarkUnsanitized(ctx, *mark)
	})
}

// AcceptFirmware makes the changed firmware measurements of a function the accepted ones, because an operator ordered
// it. The order is written to the ledger first. If a stage failed because of these changes and found nothing else, the
// function becomes free. Changes that the policy Record has let pass are no longer reported.
//
// Errors a caller may branch on: [ErrNoFailedStage], [ErrNotOnlyFirmware], [effects.EvidenceError].
func (m *Maintainer) AcceptFirmware(ctx context.Context, a pci.Address, reason string, by ledger.Operator) error {
	_, failed, err := m.FailedStage(ctx, a)
	if err != nil {
		return err
	}
	if !failed {
		return m.acceptRecorded(ctx, a, reason, by)
	}
	return m.withFailed(ctx, a, func(mark *journal.SanitizeMark) error {
		proof := mark.Failed.Proof
		if proof == nil {
			return fmt.Errorf("%s: %w", a, ErrNotOnlyFirmware)
		}
		e := stageEvent(mark)
		describeAccepted(e, proof, mark.Failed.Changes, reason, by)
		if err := m.append(ctx, *e); err != nil {
			return err
		}
		return m.markAccepted(ctx, *proof)
	})
}

// markAccepted makes a function free with the proof that an operator accepted. Former measurements that it lacks are kept, because the
// next measurement of such a name must not count as the device's first. Results need not have them: the operator accepted that, too.
func (m *Maintainer) markAccepted(ctx context.Context, proof journal.SanitizeProof) error {
	former, err := m.proven(proof.Identity)
	if err != nil {
		return err
	}
	proof.Missing = sanitize.Lacking(sanitize.Merge(former.Missing, former.Firmware), proof.Firmware)
	return m.order.Effects.Journal.MarkSanitized(ctx, proof)
}

// describeAccepted completes the event of firmware that an operator accepts.
func describeAccepted(e *ledger.Event, proof *journal.SanitizeProof, changes []sanitize.Change, reason string, by ledger.Operator) {
	e.Reason, e.By = reason, &by
	e.Sanitize.Profile, e.Sanitize.Image, e.Sanitize.Verdict = proof.Profile, proof.Image, string(sanitize.Clean)
	for _, change := range changes {
		e.Sanitize.Changes = append(e.Sanitize.Changes, change.String())
	}
	describeResult(e.Sanitize, &sanitize.Result{Checks: proof.Checks, Firmware: proof.Firmware})
}

// acceptRecorded accepts the changes that the policy Record has let pass. It holds the function's locks, because a
// stage may be decided at the same time.
func (m *Maintainer) acceptRecorded(ctx context.Context, a pci.Address, reason string, by ledger.Operator) error {
	ctx, cancel := m.order.InTime(ctx)
	defer cancel()
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	snap, release, err := m.order.Effects.LockRequest(ctx, &claim.Request{Devices: []claim.Device{{Address: a}}}, snap)
	if err != nil {
		return err
	}
	defer release()
	f, ok := snap.Function(a)
	if !ok {
		return fmt.Errorf("%s: %w", a, ErrNoFailedStage)
	}
	proof, err := m.proven(snap.Identify(f))
	if err != nil {
		return err
	}
	if len(proof.Changed) == 0 {
		return fmt.Errorf("%s: %w", a, ErrNoFailedStage)
	}
	e := &ledger.Event{Type: ledger.Sanitize, Result: ledger.OK, Devices: []ledger.Device{{Address: a}}, Sanitize: &ledger.Sanitization{}}
	describeAccepted(e, &proof, proof.Changed, reason, by)
	if err := m.append(ctx, *e); err != nil {
		return err
	}
	for _, change := range proof.Changed {
		if change.Is == nil {
			proof.Missing = append(proof.Missing, *change.Was)
		}
	}
	proof.Firmware, proof.Changed = sanitize.Lacking(proof.Firmware, proof.Missing), nil
	return m.order.Effects.Journal.AcceptFirmware(ctx, proof)
}

// withFailed runs work on the mark of a function whose stage failed, under the function's locks.
func (m *Maintainer) withFailed(ctx context.Context, a pci.Address, work func(*journal.SanitizeMark) error) error {
	failed, found, err := m.FailedStage(ctx, a)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s: %w", a, ErrNoFailedStage)
	}
	return m.withMark(ctx, &failed, func(mark *journal.SanitizeMark) error {
		if mark.Failed == nil {
			return fmt.Errorf("%s: %w", a, ErrNoFailedStage)
		}
		return work(mark)
	})
}

// withMark runs work on the present state of a mark, under the locks of the mark's function, which a Prepare holds too.
// If the mark is gone, it does nothing. It does not wait longer than one record may take, because one goroutine decides
// all stages of the node.
func (m *Maintainer) withMark(ctx context.Context, mark *journal.SanitizeMark, work func(*journal.SanitizeMark) error) error {
	ctx, cancel := m.order.InTime(ctx)
	defer cancel()
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	req := &claim.Request{Devices: []claim.Device{{Address: presentAddress(snap, mark)}}}
	_, release, err := m.order.Effects.LockRequest(ctx, req, snap)
	if err != nil {
		return err
	}
	defer release()
	marks, err := m.order.Effects.Journal.Unsanitized()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(marks, func(now journal.SanitizeMark) bool {
		return now.Address == mark.Address && (now.Identity == mark.Identity)
	})
	if i < 0 {
		return nil
	}
	return work(&marks[i])
}

// presentAddress returns the address that a mark's function has now.
func presentAddress(snap *device.Snapshot, mark *journal.SanitizeMark) pci.Address {
	if f := snap.Find(mark.Identity).Function; f != nil {
		return f.Address
	}
	return mark.Address
}

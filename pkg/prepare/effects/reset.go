package effects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Verdict is the result of resets, in increasing weight.
type Verdict int

// Verdicts.
const (
	// Clean says that each function is proven clean, or has left the bus.
	Clean Verdict = iota
	// Unrecorded says that each function is proven clean, but the ledger lacks an event.
	Unrecorded
	// NotProven says that a function could not be proven clean.
	NotProven
	// Unfinished says that a reset has no result yet, so nothing is known about its functions.
	Unfinished
)

// ResetResult is the result of resets.
type ResetResult struct {
	Verdict Verdict
	// InKernel is set for an unfinished reset that still runs in the kernel. Until the reset ends, no driver can bind
	// or release its functions.
	InKernel bool
	// Err is nil for Clean.
	Err error
}

// join returns the common result of several resets.
func join(results []ResetResult) ResetResult {
	var all ResetResult
	errs := make([]error, len(results))
	for i, r := range results {
		all.Verdict = max(all.Verdict, r.Verdict)
		all.InKernel = all.InKernel || r.InKernel
		errs[i] = r.Err
	}
	all.Err = errors.Join(errs...)
	return all
}

// Measure records the fingerprints against which the next reset is proven. If a quarantine has fingerprints, they stay:
// its devices are compared with their state before their tenant.
func (set *Set) Measure(_ context.Context, rec *journal.Record) error {
	quarantined := rec.State == journal.Quarantined
	if quarantined && rec.Baseline != nil {
		return nil
	}
	addrs := rec.Plan.Addresses()
	if !quarantined {
		if err := set.CheckFunctions(rec); err != nil {
			return err
		}
	} else if left, err := set.present(rec, addrs); err != nil || len(left) == 0 {
		return err
	} else {
		addrs = left
	}
	found, err := set.Executor.Fingerprints(addrs)
	rec.Baseline = found
	return err
}

// ResetForHost executes the resets. If one fails, the quarantine stays unchanged.
func (set *Set) ResetForHost(ctx context.Context, rec *journal.Record) error {
	return set.ResetAll(ctx, rec, rec.Plan.Resets()).Err
}

// ResetAll executes resets of a record, devices in parallel, and replaces the record's proofs.
func (set *Set) ResetAll(ctx context.Context, rec *journal.Record, resets []isolation.Reset) ResetResult {
	proofs := make([]*isolation.Proof, len(resets))
	results := make([]ResetResult, len(resets))
	together(len(resets), func(i int) { proofs[i], results[i] = set.Reset(ctx, rec, resets[i]) })
	rec.Proofs = nil
	for _, proof := range proofs {
		if proof != nil {
			rec.Proofs = append(rec.Proofs, *proof)
		}
	}
	return join(results)
}

// Reset resets those functions of one set that are not gone. A function that leaves the bus, before or during the
// reset, loses its state, so it needs no reset, and gets no proof.
func (set *Set) Reset(ctx context.Context, rec *journal.Record, r isolation.Reset) (*isolation.Proof, ResetResult) {
	left, err := set.present(rec, r.Set)
	if err != nil {
		return nil, ResetResult{Verdict: NotProven, Err: err}
	}
	if len(left) == 0 {
		return nil, ResetResult{}
	}
	r.Set = left
	step, start := rec.Plan.ResetStep(r), time.Now()
	proof, err := set.Executor.Reset(ctx, r, rec.Baseline, findTenancy(rec))
	e := Event{Claim: rec.Plan.Claim, Phase: PhaseReset, Step: &step, Err: err, Took: time.Since(start)}
	if err == nil {
		e.Proof = &proof
	}
	set.Observe(e)
	if unfinished, ok := errors.AsType[*bind.UnfinishedError](err); ok { // it is recorded when it has a result
		return nil, ResetResult{Verdict: Unfinished, InKernel: unfinished.InKernel(), Err: err}
	}
	proof.Reset = r
	recordErr := set.Record(ctx, rec.Plan.Claim, resetEvent(&proof, err))
	switch {
	case err == nil && recordErr == nil:
		return &proof, ResetResult{}
	case err == nil:
		return nil, ResetResult{Verdict: Unrecorded, Err: recordErr}
	case recordErr != nil:
		return nil, ResetResult{Verdict: NotProven, Err: errors.Join(err, recordErr)}
	}
	if left, lookErr := set.present(rec, r.Set); lookErr == nil && len(left) == 0 {
		return nil, ResetResult{}
	}
	return nil, ResetResult{Verdict: NotProven, Err: err}
}

// findTenancy returns a name for the tenancy whose traces the record's resets clear. The result of an interrupted reset
// is used only by a reset for the same tenancy.
func findTenancy(rec *journal.Record) string {
	sandbox := ""
	if rec.Sandbox != nil {
		sandbox = rec.Sandbox.ID
	}
	return strings.Join([]string{rec.ID(), string(rec.State), rec.Since, sandbox}, " ")
}

// Mark marks the functions that the record's VM could reach and that no proof covers, and removes the marks of proven
// functions. It may be repeated.
//
// So a function leaves its claim either proven clean or marked. A marked function is reset before the next tenant gets
// it, unless the DeviceClass of that tenant's claim waives resets.
func (set *Set) Mark(ctx context.Context, rec *journal.Record, why string) error {
	if marks := Unproven(rec, why); len(marks) > 0 {
		if err := set.Journal.MarkNeedsReset(ctx, marks...); err != nil {
			return err
		}
	}
	if rec.Kind == journal.Bound {
		return nil // no VM gets a function by such a record
	}
	for _, a := range rec.Plan.Reachable() {
		if !IsProven(rec, a) {
			continue
		}
		if err := set.ProvenClean(ctx, rec, a); err != nil {
			return err
		}
	}
	return nil
}

// Unproven returns the marks of the functions that the record's VM could reach and that no proof covers.
func Unproven(rec *journal.Record, why string) []journal.ResetMark {
	if rec.Kind == journal.Bound {
		return nil // no VM gets a function by such a record
	}
	var marks []journal.ResetMark
	for _, a := range rec.Plan.Reachable() {
		if IsProven(rec, a) {
			continue
		}
		m := journal.ResetMark{Address: a, Claim: rec.ID(), Why: why, Since: time.Now().UTC().Format(time.RFC3339)}
		if fn, ok := rec.Plan.Function(a); ok {
			m.Identity = fn.Identity
		}
		marks = append(marks, m)
	}
	return marks
}

// IsProven reports whether a proof of the record covers the function.
func IsProven(rec *journal.Record, a pci.Address) bool {
	return slices.ContainsFunc(rec.Proofs, func(proof isolation.Proof) bool { return slices.Contains(proof.Set, a) })
}

// ProvenClean removes the mark of a record's function that is proven clean. The fatal errors that the function reported
// before are accounted for from then on.
func (set *Set) ProvenClean(ctx context.Context, rec *journal.Record, a pci.Address) error {
	fn, ok := rec.Plan.Function(a)
	if !ok {
		return fmt.Errorf("claim %s: %s is none of its functions", rec.Plan.Claim, a)
	}
	return errors.Join(set.AccountForErrors(ctx, rec.BootID, a), set.Journal.MarkClean(ctx, a, fn.Identity))
}

// AccountForErrors accounts for the fatal errors that the kernel has counted for a function so far. It does nothing for
// a function that no longer exists or has no counter.
func (set *Set) AccountForErrors(ctx context.Context, bootID string, a pci.Address) error {
	count, err := set.fatalErrors(a)
	if err != nil || count == 0 {
		return err
	}
	// The kernel counts from the discovery of the function on, so a count is valid only together with the inode of that
	// discovery. The inode is read before the count: if the function is discovered again in between, the mark is for a
	// function that is gone, and the errors of the new one stay unaccounted for.
	inode, err := set.FS.FunctionInode(a)
	if errors.Is(err, fs.ErrNotExist) || sysfs.Vanished(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if count, err = set.fatalErrors(a); err != nil || count == 0 {
		return err
	}
	return set.Journal.MarkFatalErrors(ctx, journal.FatalErrors{Address: a, BootID: bootID, Inode: inode, Count: count})
}

// fatalErrors returns how many fatal errors the kernel has counted for a function. It returns 0 if the function has no
// counter or does not exist.
func (set *Set) fatalErrors(a pci.Address) (uint64, error) {
	text, err := set.FS.ReadString(sysfs.FunctionPath(a) + "/aer_dev_fatal")
	if errors.Is(err, fs.ErrNotExist) || sysfs.Vanished(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	count, ok := pci.ParseFatalErrors(text)
	if !ok {
		return 0, nil
	}
	return count, nil
}

package effects

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// NoteTenancy writes durably what the VM of a tenant or of a stage changes about sanitizing. Call it before a VM can
// have the functions: a claim may end by a crash, a power failure or a forced deletion, and then nothing can be written
// at its end. It may be repeated.
//
// If the claim is a tenant's, NoteTenancy marks each function with a sanitizing stage: the function must pass the stage
// before another tenant gets it. If the claim is a stage, NoteTenancy enters the stage into the mark of its device, so
// that the plugin asks for the result even if it was not running when the stage ended.
func (set *Set) NoteTenancy(ctx context.Context, rec *journal.Record) error {
	if rec.Kind != journal.Claim {
		return nil // no VM gets a function by such a record
	}
	if rec.Plan.IsStage() {
		return set.noteStage(ctx, rec)
	}
	for _, a := range rec.Plan.Reachable() {
		fn, ok := rec.Plan.Function(a)
		if !ok {
			continue
		}
		// The proof ends first: a crash between the two writes must not leave a proof from before the tenant.
		if err := set.Journal.SpoilSanitized(ctx, a, fn.Identity); err != nil {
			return err
		}
		if err := set.markUnsanitized(ctx, rec, fn); err != nil {
			return err
		}
	}
	return nil
}

// markUnsanitized marks a function of a tenant's claim if the function has a sanitizing stage, unless it is already
// marked for this claim. If the function has a mark, the mark is updated even if the function's rule asks for no stage
// now: the claim in the old mark could otherwise get the function again, and the rule may ask for a stage later. A
// failed stage stays in the mark, because only an operator ends it.
func (set *Set) markUnsanitized(ctx context.Context, rec *journal.Record, fn *plan.Function) error {
	own := journal.SanitizeMark{
		Address: fn.Address, Identity: fn.Identity, Since: time.Now().UTC().Format(time.RFC3339), Claim: claimName(rec),
	}
	former, err := set.unsanitized(fn)
	if err != nil {
		return err
	}
	switch {
	case former == nil && fn.Sanitize == "":
		return nil
	case former == nil:
	case former.Claim.UID == rec.ID() && former.Stage == nil:
		return nil
	default:
		own.Failed = former.Failed
	}
	return set.Journal.MarkUnsanitized(ctx, own)
}

// noteStage enters a stage into the marks of its devices. A device without a mark gets one: it waits for the stage only
// because no stage has sanitized it since the node started, not because of a tenant.
func (set *Set) noteStage(ctx context.Context, rec *journal.Record) error {
	now := time.Now().UTC().Format(time.RFC3339)
	for i := range rec.Plan.Devices {
		d := &rec.Plan.Devices[i]
		fn, ok := rec.Plan.Function(d.Address)
		if !ok || d.Stage == "" {
			continue
		}
		m, err := set.unsanitized(fn)
		if err != nil {
			return err
		}
		if m == nil {
			m = &journal.SanitizeMark{Since: now, NoTenant: true}
		}
		m.Address, m.Identity = fn.Address, fn.Identity
		m.Stage = &journal.Stage{Claim: claimName(rec), Profile: d.Stage, Since: now}
		if len(rec.Plan.Claim.Pods) > 0 {
			m.Stage.Pod, m.Stage.PodUID = rec.Plan.Claim.Pods[0].Name, rec.Plan.Claim.Pods[0].UID
		}
		if err := set.Journal.MarkUnsanitized(ctx, *m); err != nil {
			return err
		}
	}
	return nil
}

// unsanitized returns the mark of a function, or nil if it has none of its own. If it has several, a mark with a failed
// stage comes first.
func (set *Set) unsanitized(fn *plan.Function) (found *journal.SanitizeMark, err error) {
	marks, err := set.Journal.Unsanitized()
	if err != nil {
		return nil, err
	}
	for i := range marks {
		m := &marks[i]
		known := m.Identity != (device.Identity{}) && fn.Identity != (device.Identity{})
		isOwn := known && m.Identity.Match(fn.Identity) == device.Agrees || !known && m.Address == fn.Address
		if isOwn && (found == nil || found.Failed == nil) {
			found = m
		}
	}
	return found, nil
}

func claimName(rec *journal.Record) journal.ClaimName {
	return journal.ClaimName{UID: rec.ID(), Namespace: rec.Plan.Claim.Namespace, Name: rec.Plan.Claim.Name, Tenant: rec.Plan.Claim.Tenant}
}

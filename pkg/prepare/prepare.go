// Package prepare is the state machine of a claim on its node: Prepare, Unprepare, HandOver, Renew and Recover. It
// decides the order of effects and takes the locks. Package plan decides what to do, and package effects how.
//
// Prepare writes the intent to disk and to the ledger, takes the steps (each verified and recorded), takes addresses
// from the pools, writes the CDI spec, waits until the ledger's events are on disk, and completes the record. Unprepare
// waits until no process has the functions open, writes the intent, removes the CDI spec, resets the functions and
// proves them clean, restores the original bindings, returns the addresses, and removes the record.
//
// After a crash at any point, Recover brings each function to one of these two ends. A power failure may lose writes
// that do not wait for the disk, and thereby take the record back to an earlier state. That is safe: in the next boot
// nothing of the claim is on the node, and all functions that a VM may have had are marked as not clean.
package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Config has the settings and the parts of a Preparer.
type Config struct {
	Parts effects.Parts
	// Node is the node config. It says which functions kata-vfio publishes.
	Node *v1alpha1.NodeConfig
	// NodeName is the node's name in the cluster. If it is empty, Prepare does not compare a claim's pools with the
	// node's pools.
	NodeName string
	// Sanitizers are the profiles that the node config's rules name; nil if there are none.
	Sanitizers *v1alpha1.Sanitizers
	// Checks are the audit's checks of the node; nil if no audit runs.
	Checks Checks
	// Server passes a claim's devices to VMs; nil for a node without one.
	Server Server
	// HotPlug says that Kata plugs devices into running VMs and not at their boot.
	HotPlug bool
	// HotPlugWindow is the HotPlugWindow of [plan.Node].
	HotPlugWindow uint64
	// HolderWait is how long Unprepare waits for a holder to end before it returns an [effects.InUseError]. It waits
	// equally long for a provider's program that is away before it returns a [bind.AwayError]. The context may end the
	// wait sooner.
	HolderWait time.Duration
	// UndoLimit limits the time of an undo after a failed Prepare, whose own context may have ended.
	UndoLimit time.Duration
	// RecoverLimit limits the recovery of one record. An instance of the plugin that was killed during a write that
	// hangs in the kernel keeps the lock of its claim, and other claims must not wait for that lock. Zero means no
	// limit.
	RecoverLimit time.Duration
	// Provides is the Provides of [plan.Node]: it decides the settings for a provider that Parts contains and package
	// plan does not know. It is nil if there is no such provider.
	Provides func(*device.Function) ([]plan.Setting, *rule.Verdict)
	// Tracer may be nil.
	Tracer Tracer
}

// Checks are the audit's checks of a node; [check.Failures] implements it.
type Checks interface {
	// IDs returns the IDs of the failed checks that count for a function. A claim gets a function for which a check
	// failed only if its class sets allowUnisolated.
	IDs(a pci.Address) []string
}

// Server passes the devices of claims to VMs; [podres.Socket] implements it.
type Server interface {
	// Served returns an error that says why the server does not answer, or nil if the server answers.
	Served(ctx context.Context) error
}

// Preparer prepares and unprepares claims. Its methods may be called concurrently. Calls for one claim, and calls for
// claims that share an IOMMU group or a PF, wait for each other. All other calls run side by side.
type Preparer struct {
	order    *Order
	refusals *refusals
}

// New returns a Preparer.
func New(c Config) *Preparer {
	order := newOrder(&c)
	return &Preparer{order: order, refusals: newRefusals(order.Effects)}
}

// Order returns the executor of claims, for package maintain.
func (p *Preparer) Order() *Order { return p.order }

// Prepare makes the claim's functions ready for its VM and returns its record,
// in state Prepared. It may be repeated at any time:
//
//   - A prepared claim is verified and not changed, even while its devices are in use. Bindings, settings and activations that were lost
//     are made again. An activation can't be verified while the program that makes it is away: it then counts as in force if it was in
//     force last and a sandbox has the claim.
//   - A claim that was interrupted during a reset continues with the result of that reset.
//   - A claim that was interrupted at another point is undone and prepared from the start.
//   - A claim that is now allocated other devices, or devices from other pools, is unprepared first.
//
// If Prepare returns an error, nothing of the claim is left on the node, or the error says what could not be undone. In
// the latter case, the record stays for the next try.
//
// Callers may branch on these errors: [rule.RefusedError], [effects.InUseError],
// [NotReadyError], [QuarantinedError], [ReallocatedError], [bind.StepError], [journal.FileError], [journal.FullError],
// [podnet.PluginError], [effects.EvidenceError], [bind.UnfinishedError].
func (p *Preparer) Prepare(ctx context.Context, req *claim.Request) (rec *journal.Record, err error) {
	ctx, end := p.order.Config.begun(ctx, Call{Kind: CallPrepare, Claim: plan.NewRef(req)})
	defer func() { end(Result{Record: rec, Err: err}) }()
	// Deferred calls run in reverse order. So this one runs after the claim's lock is released, and before end, which
	// reports the error of this one.
	defer func() { rec, err = p.refusals.recordResult(ctx, req, rec, err) }()
	release, err := p.order.Effects.LockClaim(ctx, plan.NewRef(req))
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err = p.order.Effects.Journal.Load(req.UID)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		return p.resume(ctx, req, rec)
	}
	return p.order.Begin(ctx, req, journal.Claim)
}

// Begin prepares a claim that has no record, or binds devices without a claim. It applies the changes to the plan
// before it writes the record.
func (o *Order) Begin(ctx context.Context, req *claim.Request, kind journal.Kind, changes ...func(*plan.Plan)) (*journal.Record, error) {
	if err := o.mayBegin(ctx, kind); err != nil {
		return nil, err
	}
	snap, err := o.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	// The first snapshot only says which locks to take. The plan is made from the second one, which was read with the
	// locks held.
	snap, release, err := o.Effects.LockRequest(ctx, req, snap)
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err := o.decide(ctx, req, kind, snap, changes)
	if err != nil {
		return nil, err
	}
	if err := o.Effects.RecordSoon(ctx, rec.Plan.Claim, ledger.Event{Type: ledger.Prepare, Devices: effects.LedgerDevices(snap, rec)}); err != nil {
		return nil, errors.Join(err, o.Effects.Forget(rec)) // nothing is done yet
	}
	err = o.CarryOut(ctx, rec, plan.Preparation())
	return o.conclude(ctx, rec, err)
}

// Warm binds devices without a claim, as policy "bound" does. It also resets the devices and proves them clean.
func (o *Order) Warm(ctx context.Context, req *claim.Request) (*journal.Record, error) {
	return o.Begin(ctx, req, journal.Bound, (*plan.Plan).ResetFirst)
}

// CarryOut executes phases in order until one fails. It may be repeated after a crash, because each phase skips the
// steps that are done already.
func (o *Order) CarryOut(ctx context.Context, rec *journal.Record, phases []plan.Phase) error {
	for _, phase := range phases {
		if err := o.effect(phase)(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// effect returns the function that executes a phase.
func (o *Order) effect(phase plan.Phase) func(context.Context, *journal.Record) error {
	switch phase {
	case plan.LoadModules:
		return o.Effects.LoadModules
	case plan.Bind:
		return o.Effects.BindAll
	case plan.ResetBefore:
		return o.resetBefore
	case plan.ConfigureVFs:
		return o.Effects.ConfigureVFs
	case plan.ApplySettings:
		return o.Effects.ApplySettings
	case plan.Activate:
		return o.activate
	case plan.Deactivate:
		return o.deactivate
	case plan.Measure:
		return o.Effects.Measure
	case plan.TakeAddresses:
		return o.Effects.TakeAddresses
	case plan.BindEndpoints:
		return o.Effects.BindEndpoints
	case plan.WriteSpec:
		return o.Effects.WriteSpec
	case plan.RemoveSpec:
		return o.Effects.RemoveSpec
	case plan.RebindEndpoints:
		return o.Effects.RebindEndpoints
	case plan.UnbindEndpoints:
		return o.Effects.UnbindEndpoints
	case plan.ResetAfter:
		return o.resetAfter
	case plan.ResetForHost:
		return o.Effects.ResetForHost
	case plan.Restore:
		return o.Effects.Restore
	case plan.ReturnAddresses:
		return o.Effects.ReturnAddresses
	}
	return func(context.Context, *journal.Record) error {
		return fmt.Errorf("no effect is known for the phase %q", phase)
	}
}

// conclude completes the record of a Prepare. err is the error of its phases, or nil. A failed Prepare is undone,
// except after a quarantine and while a reset runs in the kernel.
func (o *Order) conclude(ctx context.Context, rec *journal.Record, err error) (*journal.Record, error) {
	if err == nil {
		err = o.Effects.NoteTenancy(ctx, rec)
	}
	if err == nil {
		err = o.Effects.Complete(ctx, rec)
	}
	_, inKernel := errors.AsType[*resetInKernelError](err)
	_, quarantined := errors.AsType[*QuarantinedError](err)
	switch {
	case err == nil:
		return rec, nil
	case inKernel, quarantined:
		return nil, err
	}
	return nil, o.abandon(ctx, rec, err)
}

// resume continues with a claim that has a record.
func (p *Preparer) resume(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	snap, err := p.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	// A repeated call does not pass through plan.Make, which compares the pools with the node for a new claim.
	if err := plan.CheckNode(req, p.order.Config.NodeName); err != nil {
		return nil, err
	}
	thisBoot := rec.BootID == snap.Host.BootID
	lasting := rec.State == journal.Quarantined || rec.State == journal.Prepared && thisBoot
	switch {
	case lasting && !rec.Plan.Gives(req.Devices):
		return p.reallocate(ctx, req, rec)
	case rec.State == journal.Quarantined:
		return nil, &QuarantinedError{Record: rec}
	case lasting:
		if err := p.order.Reaffirm(ctx, rec); err != nil {
			return nil, err
		}
		return p.reserve(rec, req)
	}
	if thisBoot && isResettingBefore(rec) && rec.Plan.Gives(req.Devices) {
		if own, err := p.goOn(ctx, req, rec); own != nil || err != nil {
			return own, err
		}
	}
	// All other records are of an interrupted call (Preparing, Releasing, Cleaned), or of a claim that was prepared in
	// an earlier boot.
	work := rec.Clone()
	if err := p.order.TakeOff(ctx, work); err != nil {
		return nil, err
	}
	return p.order.Begin(ctx, req, rec.Kind)
}

// reserve records the pods for which the API server has reserved a prepared claim. After a pod was deleted by force, another pod can
// use the same claim without an Unprepare in between. [Preparer.HandOver] resets the devices when the VM of the next
// pod gets them.
func (p *Preparer) reserve(rec *journal.Record, req *claim.Request) (*journal.Record, error) {
	if slices.Equal(rec.Plan.Claim.Pods, req.Pods) {
		return rec, nil
	}
	own := rec.Clone()
	own.Plan.Claim.Pods = req.Pods
	return own, p.order.Effects.Keep(own)
}

// A reset during Prepare may take longer than the kubelet waits for one call, and a reset in the kernel can't be
// canceled. If Prepare were undone meanwhile, the next call would start another reset. So the record stays, and the
// next call uses the result of the running reset.

// isResettingBefore reports whether the resets of a record's Prepare have begun.
func isResettingBefore(rec *journal.Record) bool {
	return rec.State == journal.Preparing && len(rec.Plan.ResetsBefore) > 0 && rec.Baseline != nil
}

// goOn continues with a claim whose resets before the tenant have begun. If the plan would be another one now, the
// claim must be undone first, and goOn returns a nil record and no error.
func (p *Preparer) goOn(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	snap, release, err := p.order.Effects.LockRecord(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := p.order.Effects.Unheld(ctx, snap, rec.Plan.Claim, rec.Plan.AddressesIn(snap)); err != nil {
		return nil, err
	}
	now, err := p.order.Planning.Make(req, snap)
	if _, refused := errors.AsType[*rule.RefusedError](err); refused {
		// The caller undoes the claim and plans it again, which returns the refusal.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !takesTheSame(now, &rec.Plan) {
		return nil, nil
	}
	own := rec.Clone()
	own.Plan.Claim = now.Claim
	err = p.order.CarryOut(ctx, own, plan.Preparation())
	return p.order.conclude(ctx, own, err)
}

// takesTheSame reports whether two plans bind the same functions, of the same groups and in the same roles, to the same
// drivers.
func takesTheSame(a, b *plan.Plan) bool {
	return slices.EqualFunc(a.Functions, b.Functions, func(a, b plan.Function) bool {
		return a.Address == b.Address && a.Identity.Is(b.Identity) &&
			a.Group == b.Group && a.Role == b.Role && a.Target == b.Target
	})
}

// PlanNode returns everything that decides whether a claim is refused: the snapshot, the config, the journal with its
// marks, and the result of [Preparer.Ready]. The publisher decides by the same facts. If PlanNode returns an error,
// every claim must be refused; the returned node still has config and records.
func (p *Preparer) PlanNode(ctx context.Context, snap *device.Snapshot) (plan.Node, error) {
	n, err := p.order.Planning.PlanNode(snap)
	n.NotReady = p.notReady(ctx)
	if ctx.Err() != nil {
		// A failure after the end of the context says nothing about the node, and must not taint its devices.
		n.NotReady = nil
		return n, context.Cause(ctx)
	}
	return n, err
}

// Refused writes to the ledger that the caller refuses a claim its devices without calling Prepare. As for refusals by
// Prepare, each reason is written once. The event's code is the code of the cause.
func (p *Preparer) Refused(ctx context.Context, req *claim.Request, cause error) error {
	return p.refusals.refused(ctx, req, cause)
}

// Plan returns the plan that Prepare would execute now. It changes, locks and writes nothing. The functions of the plan
// have no identities: the plan is for people, and valid at this moment only.
func (p *Preparer) Plan(ctx context.Context, req *claim.Request) (*plan.Plan, error) {
	snap, err := p.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	known, err := p.order.Planning.PlanNode(snap)
	if err != nil {
		return nil, err
	}
	return PlanIn(known, req)
}

// PlanIn is [Preparer.Plan] for a node that [Preparer.PlanNode] returned. It reads nothing, so use it for many claims of
// one node.
func PlanIn(known plan.Node, req *claim.Request) (*plan.Plan, error) {
	pl, err := plan.Make(req, known)
	if err != nil {
		return nil, err
	}
	for i := range pl.Functions {
		pl.Functions[i].Identity = device.Identity{}
	}
	return pl, nil
}

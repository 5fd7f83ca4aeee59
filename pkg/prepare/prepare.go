// Package prepare is the state machine of a claim on its node: Prepare, Unprepare,
// HandOver, Renew and Recover. It owns the order of effects and the locks; what to
// do comes from package plan, and how from package effects.
//
// On the way in: intent to disk and to the ledger, steps (each verified and
// recorded), addresses, CDI spec, the ledger's events to disk, completion. On the way
// back: no holder, intent, CDI spec removed, reset and proof, original bindings, addresses
// returned, record removed. Wherever a crash comes, Recover brings each function to one
// of the two ends. Where no wait for the disk is named, a power failure may take the
// record back to an earlier state: in the next boot, nothing of the claim is on the node,
// and all that a VM may have had is marked as not clean.
package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Config says how a Preparer works, and with what.
type Config struct {
	effects.Parts
	// Node says which functions are ours.
	Node *v1alpha1.NodeConfig
	// NodeName is the node's name in the cluster. Where it is empty a claim's pools are
	// not compared with the node's.
	NodeName string
	// Failing returns the ids of the audit's checks that count and fail for a
	// function, which no claim gets then; nil where nothing is checked.
	Failing func(pci.Address) []string
	// Served returns why no server gives a claim's devices to VMs; nil for a node on which nothing asks for them.
	Served func(ctx context.Context) error
	// HotPlug says that Kata plugs devices into running VMs and not at their boot.
	HotPlug bool
	// HotPlugWindow is [plan.Node]'s.
	HotPlugWindow uint64
	// HolderWait is how long Unprepare waits for a holder to end before it
	// gives up with an [effects.InUseError]; the context may end it sooner.
	HolderWait time.Duration
	// UndoLimit bounds the way back after a failed Prepare, whose own context
	// may be over.
	UndoLimit time.Duration
	// RecoverLimit bounds the recovery of one record: an instance that was killed
	// in a write that hangs in the kernel keeps its claim's lock, and the other
	// claims must not wait for that. Zero is no limit.
	RecoverLimit time.Duration
}

// Preparer prepares and unprepares claims. Its methods may be called from
// several goroutines; calls for one claim, and for claims that share an IOMMU
// group or a PF, wait for each other, and all others run side by side.
type Preparer struct {
	order    *Order
	refusals *refusals
}

// New returns a Preparer.
func New(c Config) *Preparer {
	if c.Observe == nil {
		c.Observe = func(effects.Event) {}
	}
	order := newOrder(&c)
	return &Preparer{order: order, refusals: newRefusals(order.Recording)}
}

// Order returns what the Preparer carries claims out with, for package maintain.
func (p *Preparer) Order() *Order { return p.order }

// Prepare makes the claim's functions ready for its VM and returns its record,
// in state Prepared. It may be repeated at any time:
//
//   - A prepared claim is verified and not changed, even while its devices are in use.
//   - A claim that was interrupted during a reset continues with the result of that reset.
//   - A claim that was interrupted elsewhere is undone and prepared from the start.
//   - A claim that is allocated again with other devices, or from other pools, is
//     unprepared first.
//
// After an error, nothing of the claim is left on the node, or the error says what could not be undone and the record
// stays for the next try.
//
// Callers may branch on these errors: [plan.RefusedError], [effects.InUseError],
// [NotReadyError], [QuarantinedError], [ReallocatedError], [bind.StepError], [journal.FileError], [journal.FullError],
// [ipam.PluginError], [effects.EvidenceError], [bind.UnfinishedError].
func (p *Preparer) Prepare(ctx context.Context, req *claim.Request) (*journal.Record, error) {
	rec, err := p.prepare(ctx, req)
	if err != nil {
		return nil, errors.Join(err, p.refusals.recordRefused(ctx, plan.RefOf(req), err))
	}
	p.refusals.forget(req.UID)
	return rec, nil
}

func (p *Preparer) prepare(ctx context.Context, req *claim.Request) (*journal.Record, error) {
	ref := plan.RefOf(req)
	release, err := p.order.Locking.LockClaim(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err := p.order.Journal.Load(req.UID)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return p.order.Begin(ctx, req, journal.Claim)
	}
	return p.resume(ctx, req, rec)
}

// resume continues with a claim that has a record.
func (p *Preparer) resume(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	snap, err := p.order.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if err := plan.CheckNode(req, p.order.NodeName); err != nil {
		return nil, err
	}
	thisBoot := rec.BootID == snap.Host.BootID
	lasting := rec.State == journal.Quarantined || rec.State == journal.Prepared && thisBoot
	switch {
	case lasting && !rec.Plan.IsOf(req.Devices):
		return p.reallocate(ctx, req, rec)
	case rec.State == journal.Quarantined:
		return nil, &QuarantinedError{Record: rec}
	case lasting:
		if err := p.order.Reaffirm(ctx, rec); err != nil {
			return nil, err
		}
		return p.reserve(rec, req)
	}
	if thisBoot && isResettingBefore(rec) && rec.Plan.IsOf(req.Devices) {
		if own, err := p.goOn(ctx, req, rec); own != nil || err != nil {
			return own, err
		}
	}
	work := *rec
	if err := p.order.TakeOff(ctx, &work).Err; err != nil {
		return nil, err
	}
	return p.order.Begin(ctx, req, rec.Kind)
}

// reserve enters the pods that a prepared claim is reserved for now: where a
// pod was deleted by force, another one may follow it on the same claim without
// an Unprepare between them. What the former one's VM has left is reset when
// the next one's gets the devices, see [Preparer.HandOver].
func (p *Preparer) reserve(rec *journal.Record, req *claim.Request) (*journal.Record, error) {
	if slices.Equal(rec.Plan.Claim.Pods, req.Pods) {
		return rec, nil
	}
	own := *rec
	own.Plan.Claim.Pods = req.Pods
	return &own, p.order.Recording.Keep(&own)
}

// A reset on the way in may take longer than the kubelet waits for one call. It can't
// be taken back while it is in the kernel, and if it were then, the next call would
// begin another one. So the record stays as it is, and the next call takes the result.

// isResettingBefore reports whether the resets on a record's way in have begun.
func isResettingBefore(rec *journal.Record) bool {
	return rec.State == journal.Preparing && len(rec.Plan.ResetsBefore) > 0 && rec.Baseline != nil
}

// goOn continues with a claim whose resets before the binding have begun. It returns a nil record and no error if the
// claim must be undone first because the plan would differ now.
func (p *Preparer) goOn(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	snap, release, err := p.order.Locking.LockRecord(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := p.order.Guard.Unheld(ctx, snap, rec.Plan.Claim, rec.Plan.AddressesIn(snap)); err != nil {
		return nil, err
	}
	now, err := p.order.Planning.Make(req, snap)
	if _, refused := errors.AsType[*rule.RefusedError](err); refused {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !takesTheSame(now, &rec.Plan) {
		return nil, nil
	}
	own := *rec
	own.Plan.Claim = now.Claim
	return p.order.conclude(ctx, &own, p.order.carryIn(ctx, &own))
}

// takesTheSame reports whether two plans take the same functions from the same groups
// to the same drivers.
func takesTheSame(a, b *plan.Plan) bool {
	return slices.EqualFunc(a.Functions, b.Functions, func(a, b plan.Function) bool {
		return a.Address == b.Address && a.Identity.Is(b.Identity) &&
			a.Group == b.Group && a.Role == b.Role && a.Target == b.Target
	})
}

// PlanNode joins a snapshot with what config, journal and marks say about it, and with what [Preparer.Ready] says: all that
// decides whether a claim is refused. What is published is judged by the same. After an
// error, which refuses every claim, config and records are there.
func (p *Preparer) PlanNode(snap *device.Snapshot) (plan.Node, error) {
	n, err := p.order.Planning.PlanNode(snap)
	n.NotReady = p.notReady()
	return n, err
}

// Refused writes to the ledger that the caller refuses the claim its devices without a
// call of Prepare: once for each reason, which the code names, like refusals of Prepare.
func (p *Preparer) Refused(ctx context.Context, req *claim.Request, code string, cause error) error {
	return p.refusals.refused(ctx, req, code, cause)
}

// Plan returns what Prepare would do now, without doing it. Nothing is locked
// or written. Its functions have no identities: they are for people, and are those of this moment.
func (p *Preparer) Plan(ctx context.Context, req *claim.Request) (*plan.Plan, error) {
	snap, err := p.order.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	pl, err := p.order.Planning.Make(req, snap)
	if err != nil {
		return nil, err
	}
	for i := range pl.Functions {
		pl.Functions[i].Identity = device.Identity{}
	}
	return pl, nil
}

// A claim outlives its pods: once no pod uses it, its allocation is withdrawn, and the next
// pod's allocation may be of other devices. The kubelet unprepares it in between, unless the
// kubelet has lost its state. What is prepared by the former allocation is released first.

// ReallocatedError says that a claim is allocated again, with other devices, and that those of
// its former allocation can't be released yet. The next Prepare tries again.
type ReallocatedError struct {
	Claim       plan.Ref
	Have, Asked []string
	// Err is what keeps the former devices.
	Err error
}

func (e *ReallocatedError) Error() string {
	return fmt.Sprintf("claim %s is now allocated %s, and %s of its former allocation can't be released: %s",
		e.Claim, strings.Join(e.Asked, ", "), strings.Join(e.Have, ", "), effects.OneLine(e.Err))
}

func (e *ReallocatedError) Unwrap() error { return e.Err }

// reallocate releases what a record has by a former allocation of its claim, by the way that
// Unprepare takes, and then prepares the claim. What is not proven clean stays in quarantine,
// and does not keep the claim from its other devices.
func (p *Preparer) reallocate(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	work, out := *rec, Outcome{Next: Quarantine}
	if rec.State != journal.Quarantined {
		out = p.order.TakeOff(ctx, &work)
	}
	err := out.Err
	if out.Next == Quarantine {
		err = p.setAside(ctx, &work)
	}
	if err != nil {
		return nil, &ReallocatedError{Claim: rec.Plan.Claim, Have: names(&rec.Plan), Asked: askedFor(req), Err: err}
	}
	return p.order.Begin(ctx, req, rec.Kind)
}

// setAside keeps a quarantine under an ID of its own, so that its claim's UID is free for
// another record. It may be repeated: a crash leaves the quarantine under one of the two IDs,
// or under both.
func (p *Preparer) setAside(ctx context.Context, rec *journal.Record) error {
	aside := *rec
	aside.Plan.Claim.UID = asideID(rec)
	release, err := p.order.Locking.LockClaim(ctx, aside.Plan.Claim)
	if err != nil {
		return err
	}
	defer release()
	snap, err := p.order.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := p.order.Recording.Keep(&aside); err != nil {
		return err
	}
	if err := p.order.Recording.Backfill(ctx, snap, &aside); err != nil {
		return err
	}
	return p.order.Recording.End(ctx, rec, ledger.CodeUnproven, "the claim is allocated again, and the quarantine continues as "+aside.ID())
}

// asideID returns an ID made of the claim's UID and its first function. No UID has a ".".
func asideID(rec *journal.Record) string {
	return rec.ID() + "." + rec.Plan.Functions[0].Address.Label()
}

// names returns a plan's device names, and askedFor a request's, sorted.
func names(pl *plan.Plan) []string {
	list := make([]string, len(pl.Devices))
	for i, d := range pl.Devices {
		list[i] = d.Name
	}
	slices.Sort(list)
	return list
}

func askedFor(req *claim.Request) []string {
	list := make([]string, len(req.Devices))
	for i, d := range req.Devices {
		list[i] = d.Name
	}
	slices.Sort(list)
	return list
}

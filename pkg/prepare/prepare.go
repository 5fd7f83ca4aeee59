package prepare

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Prepare makes the claim's functions ready for its VM and returns its record,
// in state Prepared. It may be repeated at any time: a claim that is prepared
// is checked and left alone, whoever uses its devices; one that was cut off during a
// reset takes the result of that reset and goes on; one that was cut off elsewhere is
// taken back and begun anew. One that is allocated again with other devices, or from other pools,
// is released first, as Unprepare does it. After an error nothing of the claim is left on
// the node, or the error says what could not be taken back and the record
// stays for the next try.
//
// Errors a caller may branch on: [plan.RefusedError], [InUseError],
// [QuarantinedError], [ReallocatedError], [bind.StepError], [journal.FileError], [journal.FullError],
// [ipam.PluginError], [EvidenceError], [bind.UnfinishedError].
func (p *Preparer) Prepare(ctx context.Context, req *claim.Request) (*journal.Record, error) {
	rec, err := p.prepare(ctx, req)
	if err != nil {
		return nil, errors.Join(err, p.recordRefused(ctx, plan.RefOf(req), err))
	}
	p.refusals.forget(req.UID)
	return rec, nil
}

func (p *Preparer) prepare(ctx context.Context, req *claim.Request) (*journal.Record, error) {
	ref := plan.RefOf(req)
	release, err := p.lock(ctx, ref, []Lock{claimLock(req.UID)})
	if err != nil {
		return nil, err
	}
	defer release()
	rec, err := p.Journal.Load(req.UID)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return p.begin(ctx, req, journal.Claim)
	}
	return p.resume(ctx, req, rec)
}

// resume goes on with a claim that has a record.
func (p *Preparer) resume(ctx context.Context, req *claim.Request, rec *journal.Record) (*journal.Record, error) {
	snap, err := p.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if err := plan.CheckNode(req, p.NodeName); err != nil {
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
		if err := p.reaffirm(ctx, rec); err != nil {
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
	if err := p.takeOff(ctx, &work); err != nil {
		return nil, err
	}
	return p.begin(ctx, req, rec.Kind)
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
	return &own, p.keep(&own)
}

// begin prepares a claim that has no record.
func (p *Preparer) begin(ctx context.Context, req *claim.Request, kind journal.Kind) (*journal.Record, error) {
	if err := p.hasRoom(); err != nil {
		return nil, err
	}
	snap, err := p.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	snap, release, err := p.lockAssignmentSet(ctx, req, snap)
	if err != nil {
		return nil, err
	}
	defer release()
	pl, err := p.plan(req, snap)
	if err != nil {
		return nil, err
	}
	rec := &journal.Record{Kind: kind, BootID: snap.Host.BootID, Plan: *pl}
	if err := p.announce(ctx, snap, rec); err != nil {
		return nil, err
	}
	if err := p.record(ctx, rec.Plan.Claim, ledger.Event{Type: ledger.Prepare, Devices: devicesOf(snap, rec)}); err != nil {
		return nil, errors.Join(err, p.forget(rec)) // nothing is done yet
	}
	return p.conclude(ctx, rec, p.carryIn(ctx, rec))
}

// conclude returns the record of a Prepare whose steps ended with err. What has failed
// is taken back, unless the record has its end as a quarantine, or waits for a reset.
func (p *Preparer) conclude(ctx context.Context, rec *journal.Record, err error) (*journal.Record, error) {
	_, quarantined := errors.AsType[*QuarantinedError](err)
	switch {
	case err == nil:
		return rec, nil
	case quarantined, isResettingBefore(rec) && inKernel(err):
		return nil, err
	}
	return nil, p.abandon(ctx, rec, err)
}

// announce settles what the plan left open and writes the record. Addresses
// are chosen among those of all records, so that from the choice until the
// record is there nobody else on the node chooses.
func (p *Preparer) announce(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	if rec.Plan.HasVF() {
		release, err := p.lock(ctx, rec.Plan.Claim, []Lock{{Name: "vf-addresses"}})
		if err != nil {
			return err
		}
		defer release()
	}
	if err := p.resolveEndpoints(snap, rec); err != nil {
		return err
	}
	if err := p.resolveVFs(ctx, rec); err != nil {
		return err
	}
	if err := p.findPools(rec); err != nil {
		return err
	}
	return p.intend(ctx, snap, rec)
}

// intend writes the record and looks for holders, side by side: both must be
// done before the first step, and each takes its time. With a holder the
// record goes again.
func (p *Preparer) intend(ctx context.Context, snap *device.Snapshot, rec *journal.Record) error {
	ref, addrs := rec.Plan.Claim, rec.Plan.Addresses() // save changes rec
	held := make(chan error, 1)
	go func() { held <- p.untaken(ctx, snap, ref, addrs) }()
	saveErr := p.save(rec, journal.Preparing, "")
	heldErr := <-held
	if saveErr == nil && heldErr != nil {
		saveErr = p.forget(rec)
	}
	return errors.Join(heldErr, saveErr)
}

// Plan returns what Prepare would do now, without doing it. Nothing is locked
// or written.
func (p *Preparer) Plan(ctx context.Context, req *claim.Request) (*plan.Plan, error) {
	snap, err := p.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return p.plan(req, snap)
}

func (p *Preparer) plan(req *claim.Request, snap *device.Snapshot) (*plan.Plan, error) {
	n, err := p.PlanNode(snap)
	if err != nil {
		return nil, err
	}
	return plan.Make(req, n)
}

// PlanNode joins a snapshot with what config, journal and marks say about it: all that
// decides whether a claim is refused. What is published is judged by the same. After an
// error, which refuses every claim, config and records are there.
func (p *Preparer) PlanNode(snap *device.Snapshot) (plan.Node, error) {
	n := p.node(snap)
	var err error
	if n.NeedsReset, err = p.needsReset(); err != nil {
		return n, err
	}
	if n.Drained, err = p.drained(); err != nil {
		return n, err
	}
	n.FatalErrors, err = p.FatalErrors(snap)
	return n, err
}

// node joins a snapshot with what config and journal say about it.
func (p *Preparer) node(snap *device.Snapshot) plan.Node {
	holdings, damaged := p.holdings(snap.Host.BootID)
	var pools []v1alpha1.AddressPool
	if p.Node != nil {
		pools = p.Node.AddressPools
	}
	return plan.Node{
		Name:      p.NodeName,
		Snapshot:  snap,
		Selection: nodeconfig.Select(p.Node, snap),
		Owners:    holdings,
		Damaged:   damaged,

		AddressPools: pools,
		Failing:      p.Failing,

		HotPlug:       p.HotPlug,
		HotPlugWindow: p.HotPlugWindow,
	}
}

// carryIn carries out the phases of a Prepare and completes the record. It may be repeated where
// a reset was cut off: what is done is left alone, and the reset is joined. After a
// [QuarantinedError] the record has its end, and is not to be taken back.
func (p *Preparer) carryIn(ctx context.Context, rec *journal.Record) error {
	if err := p.carryOut(ctx, rec, plan.Preparation()); err != nil {
		return err
	}
	return p.save(rec, journal.Prepared, "")
}

// measure takes the fingerprints against which the next reset is proven. Those of a
// quarantine stay: its devices are compared with what they were before their tenant.
func (p *Preparer) measure(_ context.Context, rec *journal.Record) error {
	quarantined := rec.State == journal.Quarantined
	if quarantined && rec.Baseline != nil {
		return nil
	}
	found, err := p.Executor.Fingerprints(rec.Plan.Addresses())
	if err != nil && quarantined && p.allGone(rec) {
		return nil
	}
	rec.Baseline = found
	return err
}

// bindAll brings all functions to their target, groups side by side. Those of a
// quarantine may all have left the bus.
func (p *Preparer) bindAll(ctx context.Context, rec *journal.Record) error {
	var g errgroup.Group // without a shared context: one group's failure must not cut off another's write
	for _, fns := range byGroup(rec.Plan.Functions) {
		g.Go(func() error {
			for _, fn := range fns {
				if err := p.drive(ctx, rec.Plan.Claim, fn.Address, fn.Target); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil && (rec.State != journal.Quarantined || !p.allGone(rec)) {
		return err
	}
	return nil
}

// abandon takes a failed Prepare back and returns the whole story.
func (p *Preparer) abandon(ctx context.Context, rec *journal.Record, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.UndoLimit)
	defer cancel()
	p.makeRoom()
	rec.Baseline, rec.Proofs = nil, nil // no later call goes on with what is taken back
	if err := p.undo(ctx, rec, cause); err != nil {
		keep := p.save(rec, journal.Preparing, oneLine(err))
		return errors.Join(cause, &UndoError{Claim: rec.Plan.Claim, Err: errors.Join(err, keep)})
	}
	return cause
}

// undo brings all functions back to their original bindings, gives addresses
// back, and removes record and spec. It may be repeated. The cause is nil where
// it was a crash.
func (p *Preparer) undo(ctx context.Context, rec *journal.Record, cause error) error {
	if err := p.carryOut(ctx, rec, plan.Undo()); err != nil {
		return err
	}
	why := "it was cut off"
	if cause != nil {
		why = oneLine(cause)
	}
	return p.end(ctx, rec, ledger.CodeUndone, why)
}

func (p *Preparer) refresh(ctx context.Context, ref plan.Ref, addrs []pci.Address) (snap *device.Snapshot, err error) {
	err = p.timed(ref, PhaseScan, func() error {
		snap, err = p.Inventory.Refresh(ctx, addrs)
		return err
	})
	return snap, err
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

// byGroup splits functions by IOMMU group, in order.
func byGroup(fns []plan.Function) [][]plan.Function {
	var groups [][]plan.Function
	index := map[int]int{}
	for _, fn := range fns {
		i, ok := index[fn.Group]
		if !ok {
			i = len(groups)
			index[fn.Group] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], fn)
	}
	return groups
}

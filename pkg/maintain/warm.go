package maintain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// A warm device is free, and has a record like a device of policy "bound": it is on its VFIO driver, and a reset has
// proven it clean. A claim that gets it changes no driver and resets nothing. When the claim ends, the device is reset
// as after any claim, and is warm again. If the plugin is interrupted while it makes or returns a warm device, Recover
// finishes the work by the device's record.

// WarmPool is the state of a rule's devices that are kept ready for claims.
type WarmPool struct {
	// Rule names the rule of the node config.
	Rule string
	// Want is how many free devices the rule wants ready, and Ready are the devices that are.
	Want  int
	Ready []pci.Address
	// Failed are the devices that can't be made ready, with the reason: usually a process of the node uses them.
	Failed map[pci.Address]error
}

// Warming are the options of KeepWarm.
type Warming struct {
	// Skip selects devices to leave alone, because a recent attempt failed for them.
	Skip func(pci.Address) bool
	// Return says to return devices that need not be ready any more to their drivers. Without it, a device that a claim
	// has just left stays ready, in case the next claim comes soon.
	Return bool
}

// KeepWarm keeps as many free devices ready for claims as the node config wants. It takes the devices that the
// scheduler takes first: the first free ones in the order of the slices. So a claim finds them ready without any change
// of a slice. KeepWarm returns the state of each rule, and errors that do not concern a single device. It may be
// repeated, even while claims come and go, because each device is judged again under its locks.
func (m *Maintainer) KeepWarm(ctx context.Context, how Warming) ([]WarmPool, error) {
	if !how.Return && !wantsWarm(m.order.Effects.Node) {
		return nil, nil
	}
	snap, err := m.order.Effects.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	n, err := m.order.Planning.PlanNode(snap)
	if err != nil {
		return nil, err
	}
	records, _ := m.order.Effects.Journal.List() // a record that can't be read is left alone
	w := &warming{
		maintainer: m, how: how, node: n, assessor: plan.NewAssessor(n), layout: device.NewLayout(snap),
		bound: boundRecords(records, snap), wanted: map[string]bool{}, paired: map[pci.Address]*device.Function{},
	}
	for _, p := range n.Selection.Pairs() {
		w.paired[p.VF.Address] = p.GPU
	}
	var pools []WarmPool
	for _, r := range n.Selection.Warm() {
		pools = append(pools, w.fill(ctx, r))
	}
	if !how.Return {
		return pools, nil
	}
	return pools, w.returnOthers(ctx)
}

// wantsWarm reports whether a rule of the config keeps devices ready.
func wantsWarm(c *v1alpha1.NodeConfig) bool {
	return c != nil && slices.ContainsFunc(c.Devices, func(r v1alpha1.DeviceRule) bool { return r.Warm != v1alpha1.Share{} })
}

// boundRecords returns the records of devices that are bound without a claim, by the devices' functions.
func boundRecords(records []*journal.Record, snap *device.Snapshot) map[pci.Address]*journal.Record {
	bound := map[pci.Address]*journal.Record{}
	for _, rec := range records {
		if rec.Kind != journal.Bound || rec.BootID != snap.Host.BootID {
			continue
		}
		for _, a := range rec.Plan.Addresses() { // also of a device that is gone: the record is to end
			bound[a] = rec
		}
	}
	return bound
}

// warming is one call of KeepWarm.
type warming struct {
	maintainer *Maintainer
	how        Warming
	node       plan.Node
	assessor   *plan.Assessor
	layout     *device.Layout
	bound      map[pci.Address]*journal.Record
	// wanted has the IDs of the records of devices that are to be ready.
	wanted map[string]bool
	// paired has the GPU of each VF that is published only as a pair with that GPU.
	paired map[pci.Address]*device.Function
}

// fill makes the first free devices of a rule ready, up to the wanted number. It skips a device that fails.
func (w *warming) fill(ctx context.Context, r nodeconfig.Warm) WarmPool {
	pool := WarmPool{Rule: r.Rule, Want: r.Want, Failed: map[pci.Address]error{}}
	for _, f := range w.inOrder(r.Functions) {
		if len(pool.Ready) >= r.Want || ctx.Err() != nil {
			break
		}
		if !w.isFree(f) {
			continue
		}
		if !w.isReady(f) {
			if !w.canWarm(f) {
				continue
			}
			if err := w.warm(ctx, f); err != nil {
				if !isHeld(err) { // else a claim was faster
					pool.Failed[f.Address] = err
				}
				continue
			}
		}
		w.wanted[w.bound[f.Address].ID()] = true
		pool.Ready = append(pool.Ready, f.Address)
	}
	return pool
}

// inOrder returns functions in the order in which the scheduler tries them: pools by name, and devices of one pool as
// package publish orders them. Devices that are not isolated are not made ready, so only the address counts. The VF of
// a pair has the place of its GPU.
func (w *warming) inOrder(fns []*device.Function) []*device.Function {
	fns = slices.Clone(fns)
	at := func(f *device.Function) (pool string, a pci.Address) {
		if gpu := w.paired[f.Address]; gpu != nil {
			f = gpu
		}
		return w.layout.Pool(w.node.Name, f.Address), f.Address
	}
	slices.SortStableFunc(fns, func(a, b *device.Function) int {
		poolA, addrA := at(a)
		poolB, addrB := at(b)
		return cmp.Or(cmp.Compare(poolA, poolB), addrA.Compare(addrB))
	})
	return fns
}

// isFree reports whether a claim could get the function now, together with the GPU of its pair.
func (w *warming) isFree(f *device.Function) bool {
	gpu := w.paired[f.Address]
	return len(w.assessor.Assess(f).Refusals) == 0 && (gpu == nil || len(w.assessor.Assess(gpu).Refusals) == 0)
}

// isReady reports whether a free function is ready: a claim of it changes no driver and resets nothing.
func (w *warming) isReady(f *device.Function) bool {
	rec := w.bound[f.Address]
	return rec != nil && rec.State == journal.Prepared && has(rec, w.node.Snapshot) && f.OnVFIO() && !w.needsReset(rec)
}

// has reports whether a record's functions are all there.
func has(rec *journal.Record, snap *device.Snapshot) bool {
	return len(rec.Plan.AddressesIn(snap)) == len(rec.Plan.Functions)
}

// canWarm reports whether a free function that is not ready can be made ready. A function on VFIO can't, because it was
// bound by hand. A function whose record is unfinished or not clean is returned to its driver first.
func (w *warming) canWarm(f *device.Function) bool {
	rec := w.bound[f.Address]
	moved := rec != nil && rec.State == journal.Prepared && !w.needsReset(rec)
	return !device.IsVFIO(f.Driver) && (rec == nil || moved) && (w.how.Skip == nil || !w.how.Skip(f.Address))
}

// needsReset reports whether a claim would have a function of the record reset first.
func (w *warming) needsReset(rec *journal.Record) bool {
	return slices.ContainsFunc(rec.Plan.Addresses(), func(a pci.Address) bool { return w.node.NeedsReset[a] })
}

// warm makes one function ready, within the limit for one record. If somebody moved a warm device off VFIO, warm binds
// it again.
func (w *warming) warm(ctx context.Context, f *device.Function) error {
	ctx, cancel := w.maintainer.order.InTime(ctx)
	defer cancel()
	req := &claim.Request{UID: boundID(f), Devices: []claim.Device{{Request: "warm", Name: f.Name(), Address: f.Address}}}
	req.Devices[0].VFIO.Default()
	if rec := w.bound[f.Address]; rec != nil {
		req.UID = rec.ID()
	}
	release, err := w.maintainer.order.Effects.LockClaim(ctx, plan.NewRef(req))
	if err != nil {
		return err
	}
	defer release()
	rec, err := w.maintainer.order.Effects.Journal.Load(req.UID)
	switch {
	case err != nil:
		return err
	case rec == nil:
		rec, err = w.maintainer.order.Warm(ctx, req)
	case rec.State == journal.Prepared:
		work := rec.Clone()
		var stands bool
		if stands, err = w.maintainer.order.ReaffirmBound(ctx, work); !stands && err == nil {
			rec, err = w.maintainer.order.Warm(ctx, req)
		}
	default:
		err = fmt.Errorf("another process has begun to bind or return %s", f.Address)
	}
	if err != nil {
		return err
	}
	for _, a := range rec.Plan.Addresses() {
		w.bound[a] = rec
	}
	return nil
}

// isHeld reports whether the device was refused because a claim has it.
func isHeld(err error) bool {
	refused, ok := errors.AsType[*rule.RefusedError](err)
	return ok && refused.Has(rule.Held)
}

// returnOthers returns free devices to their drivers if they are not wanted: devices that were made ready, and devices
// that an earlier config kept bound. It also ends records of interrupted work. It leaves quarantines alone, which end
// otherwise.
func (w *warming) returnOthers(ctx context.Context) error {
	var errs []error
	seen := map[string]bool{}
	for _, a := range slices.SortedFunc(maps.Keys(w.bound), pci.Address.Compare) {
		rec := w.bound[a]
		if seen[rec.ID()] || w.wanted[rec.ID()] || !w.isSurplus(rec) || ctx.Err() != nil {
			continue
		}
		seen[rec.ID()] = true
		if err := w.returnOne(ctx, rec.ID()); err != nil {
			errs = append(errs, fmt.Errorf("return %s to its driver: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// isSurplus reports whether a record that is not wanted may be ended by this package: the config does not keep its
// device bound, and no claim has the device.
func (w *warming) isSurplus(rec *journal.Record) bool {
	if rec.State == journal.Quarantined || len(rec.Plan.Devices) == 0 {
		return false
	}
	choice := w.node.Selection.Choice(rec.Plan.Devices[0].Address)
	onDemand := choice.Ours && choice.Policy == v1alpha1.PolicyOnDemand || !choice.Ours && !choice.Forbidden && rec.IsWarm()
	return onDemand && isUnclaimed(&w.node, rec)
}

// isUnclaimed reports whether no claim has a function of the record.
func isUnclaimed(n *plan.Node, rec *journal.Record) bool {
	return !slices.ContainsFunc(rec.Plan.Addresses(), func(a pci.Address) bool {
		owner, held := n.Owners[a]
		return held && !owner.Bound
	})
}

// returnOne returns a device to its driver. It looks again under the locks, because a claim may have the device by now.
func (w *warming) returnOne(ctx context.Context, id string) error {
	ctx, cancel := w.maintainer.order.InTime(ctx)
	defer cancel()
	release, err := w.maintainer.order.Effects.LockClaim(ctx, plan.Ref{UID: id})
	if err != nil {
		return err
	}
	defer release()
	rec, err := w.maintainer.order.Effects.Journal.Load(id)
	if err != nil || rec == nil {
		return err
	}
	work := rec.Clone()
	snap, unlock, err := w.maintainer.order.Effects.LockRecord(ctx, rec)
	if err != nil {
		return err
	}
	defer unlock()
	if n := w.maintainer.order.Planning.WithOwners(snap); n.Damaged != "" || !isUnclaimed(&n, rec) {
		return nil // an unreadable record may be that of a claim of the device
	}
	return w.maintainer.order.TakeOffLocked(ctx, snap, work)
}

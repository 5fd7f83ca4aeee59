package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// waits reports whether Fabric Manager may be waiting for the list of active partitions.
func waits(err error) bool {
	e, ok := errors.AsType[*fabric.CodeError](err)
	return ok && (e.Code == fabric.NotConfigured || e.Code == fabric.Uninitialized)
}

// replay sends Fabric Manager the list of active partitions for which it waits, and then reads its list. While Fabric Manager waits, it
// answers no other call, so its current partition numbers can't be read: replay uses the numbers of the last list. Another version of
// Fabric Manager may number its partitions differently. It gets no list while a VM may be using a partition: a partition that joins GPUs of
// two tenants is worse than none.
func (n *Node) replay(ctx context.Context) error {
	active, err := n.activePartitions(ctx)
	if err != nil {
		return fmt.Errorf("the active partitions, for which Fabric Manager waits, are not known: %w", err)
	}
	if err := n.fabric.checkVersion(active); err != nil {
		return err
	}
	ids := make([]int, len(active))
	for i := range active {
		ids[i] = active[i].ID
	}
	if err := n.fabric.SetActivated(ctx, ids); err != nil {
		return err
	}
	if err := n.fabric.resumed(); err != nil {
		return err
	}
	listed, err := n.fabric.Partitions(ctx)
	if err != nil {
		return err
	}
	if err := n.fabric.findWrong(active, listed); err != nil {
		return errors.Join(err, n.endWrong(ctx))
	}
	return nil
}

// checkVersion refuses to name the active partitions by their numbers if another version of NVIDIA's driver listed these numbers. It
// accepts an empty list of active partitions from any version.
func (f *fabricClient) checkVersion(active fabric.List) error {
	last, err := f.last()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now := f.version()
	if len(active) == 0 || last.Version == "" || now == "" || last.Version == now {
		return nil
	}
	return fmt.Errorf("the partitions, of which Fabric Manager waits for the active ones, were listed with version %s of NVIDIA's driver, and it is %s now: "+
		"its numbers may mean other GPUs, so it is told none; end the pods with partition %s, after which it is told that none is active, or install the former version",
		last.Version, now, active)
}

// findWrong records the partitions that Fabric Manager activated under the number of a different partition, and returns an error that names
// them. See [Node.endWrong].
func (f *fabricClient) findWrong(told, listed fabric.List) error {
	var errs []error
	var wrong fabric.List
	for _, p := range listed.Active() {
		meant := told.Numbered(p.ID)
		if meant == nil || slices.Equal(meant.Modules(), p.Modules()) {
			continue
		}
		wrong = append(wrong, p)
		errs = append(errs, fmt.Errorf("partition %s was named by its number after a restart, and Fabric Manager made %s active, because its numbers have changed: that one is ended", meant, &p))
	}
	if wrong == nil {
		return nil
	}
	why := errors.Join(errs...)
	_, err := f.keep(func(s *fabric.State) {
		for _, p := range wrong {
			if s.Wrong.With(p.Modules()) == nil { // a wrong partition that was recorded before may still be active
				s.Wrong = append(s.Wrong, p)
			}
		}
		s.Away = oneLine(why)
	})
	return errors.Join(why, err)
}

// endWrong deactivates the partitions that Fabric Manager activated under the number of a different partition. It skips a partition that a
// claim has, and one with a GPU that a process has open. Each call tries again until no wrong partition is active. Until then it returns an
// error, and no claim gets a partition.
func (n *Node) endWrong(ctx context.Context) error {
	last, err := n.fabric.last()
	if err != nil || len(last.Wrong) == 0 {
		return err
	}
	snap, err := n.Parts.Inventory.Refresh(ctx, nil) // the snapshot must have the current state file
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range last.Wrong {
		errs = append(errs, n.endOne(ctx, snap, &p))
	}
	_, err = n.fabric.Partitions(ctx) // the state file must no longer have them as active
	return errors.Join(append(errs, err)...)
}

// endOne deactivates one wrong partition, by its number in the last list. If a claim has the partition, endOne records instead that it is
// not wrong.
func (n *Node) endOne(ctx context.Context, snap *device.Snapshot, p *fabric.Partition) error {
	claims, err := n.claimsWith(snap, p)
	if err != nil {
		return err
	}
	if claims {
		return n.fabric.isRight(p)
	}
	board := nodeconfig.Select(n.Node, snap).Fabric().Board
	if board == nil {
		return fmt.Errorf("partition %s is active because Fabric Manager took the number of another one for it after a restart, and is not ended: no map of modules says which GPUs it has, and so whether a process has one", p)
	}
	switch held, err := n.isHeld(ctx, snap, board.Addresses(p)); {
	case err != nil:
		return err
	case held:
		return fmt.Errorf("partition %s is active because Fabric Manager took the number of another one for it after a restart, and is not ended while a process has one of its GPUs", p)
	}
	return n.fabric.Deactivate(ctx, p.ID)
}

// claimsWith reports whether a claim of this boot has the partition.
func (n *Node) claimsWith(snap *device.Snapshot, p *fabric.Partition) (bool, error) {
	records, errs := n.Parts.Journal.List()
	return slices.ContainsFunc(records, func(rec *journal.Record) bool {
		return rec.BootID == snap.Host.BootID && rec.State != journal.Cleaned && slices.ContainsFunc(recordedPartitions(rec), func(q fabric.Partition) bool { return slices.Equal(p.Modules(), q.Modules()) })
	}), errors.Join(errs...)
}

// isRight removes a partition from the recorded wrong ones.
func (f *fabricClient) isRight(p *fabric.Partition) error {
	_, err := f.keep(func(s *fabric.State) {
		s.Wrong = slices.DeleteFunc(slices.Clone(s.Wrong), func(q fabric.Partition) bool { return slices.Equal(q.Modules(), p.Modules()) })
	})
	return err
}

// last returns what Fabric Manager answered last.
func (f *fabricClient) last() (*fabric.State, error) {
	text, err := os.ReadFile(f.state)
	if err != nil {
		return nil, err
	}
	s, err := fabric.Parse[fabric.State](text)
	if err != nil {
		return nil, fmt.Errorf("%s can't be read: %w", fabric.StateFile, err)
	}
	return s, nil
}

// activePartitions returns the partitions that VMs may be using, with their numbers of the last list. These are the partitions of the
// journal, and those that Fabric Manager last listed as active and that have a GPU which a process has open. A missing partition would cut
// off a running VM, so an error of any source fails the whole call. Without a map of modules the journal's partitions are complete, because
// no claim gets a partition without a map.
func (n *Node) activePartitions(ctx context.Context) (fabric.List, error) {
	snap, err := n.Parts.Inventory.Refresh(ctx, nil) // the snapshot must have the current state file
	if err != nil {
		return nil, err
	}
	all, err := n.partitionsOfRecords(snap)
	if err != nil {
		return nil, err
	}
	if board := nodeconfig.Select(n.Node, snap).Fabric().Board; board != nil {
		for _, p := range board.Partitions().Active() {
			held, err := n.isHeld(ctx, snap, board.Addresses(&p))
			if err != nil {
				return nil, err
			}
			if held {
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, func(p, q fabric.Partition) int { return cmp.Compare(p.ID, q.ID) })
	return slices.CompactFunc(all, func(p, q fabric.Partition) bool { return p.ID == q.ID }), nil
}

// partitionsOfRecords returns the active partitions of the journal's claims of this boot. The partitions of a prepared claim always count.
// The partitions of a claim that is being prepared or released count only if Fabric Manager last listed them as active: they may not be
// active yet, or may be inactive already, and nobody would deactivate a partition that this list activates.
func (n *Node) partitionsOfRecords(snap *device.Snapshot) (fabric.List, error) {
	records, errs := n.Parts.Journal.List()
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	last, err := listedLast(&snap.Host.Fabric)
	if err != nil {
		return nil, err
	}
	var all fabric.List
	for _, rec := range records {
		if rec.BootID != snap.Host.BootID {
			continue
		}
		for _, p := range recordedPartitions(rec) {
			listed, other := last.With(p.Modules()), last.Numbered(p.ID)
			if listed != nil {
				p.ID = listed.ID // the numbers may have changed since the record was written
			}
			switch rec.State {
			case journal.Prepared:
				if listed == nil && other != nil {
					return nil, fmt.Errorf("partition %s of claim %s is not in the last list, which has %s", &p, rec.Plan.Claim, other)
				}
				all = append(all, p)
			case journal.Preparing, journal.Releasing:
				if listed != nil && listed.Active {
					all = append(all, p)
				}
			case journal.Cleaned, journal.Quarantined: // no tenant has the partition any more
			}
		}
	}
	return all, nil
}

// listedLast returns the partitions that Fabric Manager listed last; none if Fabric Manager was never asked.
func listedLast(facts *device.FabricFacts) (fabric.List, error) {
	switch {
	case facts.Unread != "":
		return nil, errors.New(facts.Unread)
	case facts.State == "":
		return nil, nil
	}
	s, err := fabric.Parse[fabric.State]([]byte(facts.State))
	if err != nil {
		return nil, fmt.Errorf("%s can't be read: %w", fabric.StateFile, err)
	}
	return s.Partitions, nil
}

// recordedPartitions returns the partitions of a record, one entry for each GPU: a partition of several GPUs occurs several times.
func recordedPartitions(rec *journal.Record) fabric.List {
	var all fabric.List
	for i := range rec.Plan.Functions {
		for _, s := range rec.Plan.Functions[i].Settings {
			if s.Provider != plan.ProviderFabric {
				continue
			}
			if p, ok := fabric.ParsePartition(s.Want); ok {
				all = append(all, *p)
			}
		}
	}
	return all
}

// isHeld reports whether a process has a VFIO device of one of the functions open.
func (n *Node) isHeld(ctx context.Context, snap *device.Snapshot, addrs []pci.Address) (bool, error) {
	var nodes []string
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok {
			continue
		}
		nodes = append(nodes, vfio.Nodes(f)...)
	}
	holders, err := n.Parts.Holders.Find(ctx, nodes)
	return len(holders) > 0, err
}

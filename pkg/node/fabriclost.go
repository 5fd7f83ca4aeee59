package node

import (
	"context"
	"errors"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// Reactivated is the result of activating the partition of a prepared claim again, after Fabric Manager listed the partition as inactive.
type Reactivated struct {
	Record *journal.Record
	// Err is nil if the partition is active again.
	Err error
}

// Reactivate activates the partitions of prepared claims that Fabric Manager's last list has as inactive: see
// [prepare.Preparer.Reactivate]. Call it after [Node.AskFabric]. For all other claims it makes no call to Fabric Manager.
func (n *Node) Reactivate(ctx context.Context) ([]Reactivated, error) {
	if n.Node == nil || n.Node.Fabric == nil || n.fabric == nil {
		return nil, nil
	}
	lost, err := n.withLostPartition(ctx)
	if err != nil {
		return nil, err
	}
	var all []Reactivated
	for _, rec := range lost {
		err := n.Preparer.Reactivate(ctx, rec.ID())
		if _, ended := errors.AsType[*prepare.NotPreparedError](err); !ended {
			all = append(all, Reactivated{Record: rec, Err: err})
		}
	}
	return all, nil
}

// withLostPartition returns the records of claims that were prepared in this boot and have a partition that the last list does not have as
// active.
func (n *Node) withLostPartition(ctx context.Context) ([]*journal.Record, error) {
	last, err := n.fabric.last()
	if err != nil {
		return nil, err
	}
	snap, err := n.Parts.Inventory.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	records, _ := n.Parts.Journal.List() // a record that can't be read is reported elsewhere, and its claim is left alone
	return slices.DeleteFunc(slices.Clone(records), func(rec *journal.Record) bool {
		return rec.State != journal.Prepared || rec.BootID != snap.Host.BootID || !slices.ContainsFunc(recordedPartitions(rec), func(p fabric.Partition) bool {
			listed := last.Partitions.With(p.Modules())
			return listed == nil || !listed.Active
		})
	}), nil
}

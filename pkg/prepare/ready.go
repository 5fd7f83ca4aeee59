package prepare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// If a node refused every claim while its slices offered free devices, it would attract one pod after the other,
// because an allocated claim stays with its node. So Prepare and the publisher use the same functions to judge what
// Prepare needs of the node: Prepare calls them before it changes anything, and the publisher taints all devices by
// their result.

// NotReadyError says that the node refuses all new claims. Prepared claims can still end.
type NotReadyError struct {
	Obstacle rule.Code
	Err      error
}

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("the node refuses all new claims (%s): %s", e.Obstacle, effects.OneLine(e.Err))
}

// Code is the obstacle, which conditions and Events show.
func (e *NotReadyError) Code() rule.Code { return e.Obstacle }

func (e *NotReadyError) Unwrap() error { return e.Err }

// Ready returns a [NotReadyError] if the node refuses all new claims. It takes some microseconds. It writes nothing
// except for the files that reserve space on the disk.
func (p *Preparer) Ready(ctx context.Context) error {
	return errors.Join(p.order.canBegin(ctx), p.order.served(ctx))
}

// readyLimit limits how long the publisher waits for the judgment of the node, because another process may keep the
// ledger's lock.
const readyLimit = 2 * time.Second

// notReady returns the result of [Preparer.Ready] for a plan, or nil if the node is open for reading only.
func (p *Preparer) notReady(ctx context.Context) *plan.NotReady {
	if p.order.Effects.Locks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	var all *plan.NotReady
	for _, err := range []error{p.order.canBegin(ctx), p.order.served(ctx)} {
		if why, ok := errors.AsType[*NotReadyError](err); ok {
			all = addObstacle(all, why)
		}
	}
	return all
}

// addObstacle adds a further obstacle to the text, so that an operator does not expect the taint to go when only the
// first obstacle is removed.
func addObstacle(all *plan.NotReady, why *NotReadyError) *plan.NotReady {
	text := effects.OneLine(why.Err)
	if all == nil {
		return &plan.NotReady{Obstacle: why.Obstacle, Text: text}
	}
	return &plan.NotReady{Obstacle: all.Obstacle, Text: fmt.Sprintf("%s; and %s: %s", all.Text, why.Obstacle, text)}
}

// mayBegin returns a [NotReadyError] if no record of the kind can be prepared. Only claims need the server: see
// [Order.served].
func (o *Order) mayBegin(ctx context.Context, kind journal.Kind) error {
	if err := o.canBegin(ctx); err != nil || kind != journal.Claim {
		return err
	}
	return o.served(ctx)
}

// canBegin returns a [NotReadyError] if nothing can be prepared, with or without a claim.
func (o *Order) canBegin(ctx context.Context) error {
	for _, part := range []struct {
		obstacle rule.Code
		look     func() error
	}{
		{rule.DiskFull, o.Effects.HasRoom},
		{rule.StateNotWritable, o.Effects.Journal.Writable},
		{rule.NoEvidence, func() error { return o.Effects.CanRecord(ctx) }},
		{rule.CDINotWritable, o.Effects.Specs.Writable},
	} {
		if err := part.look(); err != nil {
			return &NotReadyError{Obstacle: obstacleIn(part.obstacle, err), Err: err}
		}
	}
	return nil
}

// obstacleIn returns the code of an obstacle. It returns [rule.StateNotWritable] instead of [rule.DiskFull] if the disk
// has space but can't be used.
func obstacleIn(usual rule.Code, err error) rule.Code {
	if _, full := errors.AsType[*journal.FullError](err); usual == rule.DiskFull && !full {
		return rule.StateNotWritable
	}
	return usual
}

// served returns a [NotReadyError] if a VM would not get the devices of a claim.
func (o *Order) served(ctx context.Context) error {
	if o.Config.Server == nil {
		return nil
	}
	if err := o.Config.Server.Served(ctx); err != nil {
		return &NotReadyError{Obstacle: rule.PodResourcesNotServed, Err: err}
	}
	return nil
}

package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// recoveryPatience is how long the plugin waits at start for the recovery before it serves. A recovery takes less than a second,
// unless devices are slow to reset or a process hangs in the kernel with locks.
const recoveryPatience = 15 * time.Second

// RecoverableNode is recovered at start; [node.Node] implements it.
type RecoverableNode interface {
	MarkEarlier(ctx context.Context) error
	Recover(ctx context.Context) (*prepare.Recovery, error)
}

// Recovery recovers the claims of an earlier instance, and then prepares the node's devices. Where devices are slow, it goes on
// while the plugin serves: each call for a claim waits for that claim's own recovery.
type Recovery struct {
	Node RecoverableNode
	// Then, which may be nil, is called when the recovery has ended.
	Then func(context.Context)
	// Patience is how long Begin waits for the end.
	Patience time.Duration
	Log      *slog.Logger

	done chan struct{}
}

// Begin returns when claims may be served: no device that a tenant of an earlier boot had counts as clean, and the recovery has
// ended or its time is over. Then it continues in the group, until ctx ends. An error of the recovery ends the group.
func (r *Recovery) Begin(ctx context.Context, g *errgroup.Group) error {
	if err := r.Node.MarkEarlier(ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	r.done = make(chan struct{})
	g.Go(func() error {
		if err := r.run(ctx); err != nil {
			return err
		}
		// Only after a success: what waits for it must not begin after an error, which ends the group.
		close(r.done)
		return nil
	})
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-time.After(r.Patience):
		r.Log.WarnContext(ctx, "the recovery goes on while the plugin serves: devices are slow to reset, or a process hangs with a claim's lock")
	}
	return nil
}

// Await returns whether the recovery has ended before ctx.
func (r *Recovery) Await(ctx context.Context) bool {
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// run recovers all claims. It logs what fails, so that the node's other devices work.
func (r *Recovery) run(ctx context.Context) error {
	found, err := r.Node.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	r.Log.InfoContext(ctx, "recovered", slog.Int("kept", len(found.Kept)), slog.Int("undone", len(found.Undone)),
		slog.Int("released", len(found.Released)), slog.Int("quarantined", len(found.Quarantined)),
		slog.Any("removedSpecs", found.Specs), slog.Any("strays", found.Orphans))
	for _, err := range found.Unfinished {
		r.Log.ErrorContext(ctx, "not recovered", slog.Any("err", err))
	}
	if r.Then != nil {
		r.Then(ctx)
	}
	return nil
}

// startRecovery begins the recovery, after which VFs are provisioned and functions of policy bound are bound.
func (s *service) startRecovery(ctx context.Context, g *errgroup.Group) error {
	s.recordStart(ctx)
	s.vfs = &ProvisionWatch{VFs: s.node.Maintainer, Metrics: s.metrics, Log: s.log}
	s.recovery = &Recovery{Node: s.node, Then: s.vfs.Start, Patience: recoveryPatience, Log: s.log}
	return s.recovery.Begin(ctx, g)
}

// recovered runs work that must not meet records of an earlier boot, once the recovery has ended.
func (s *service) recovered(ctx context.Context, work func(context.Context) error) error {
	if !s.recovery.Await(ctx) {
		return nil
	}
	return work(ctx)
}

package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// recoveryPatience is how long the plugin waits for the recovery at start before it serves. A recovery takes less than a second, unless
// devices are slow to reset, or a process hangs in the kernel while it holds locks.
const recoveryPatience = 15 * time.Second

// RecoverableNode is recovered at start; [node.Node] implements it.
type RecoverableNode interface {
	MarkEarlier(ctx context.Context) error
	Recover(ctx context.Context) (*prepare.Recovery, error)
}

// Recovery recovers the claims of an earlier instance, and then prepares the node's devices. If devices are slow, the recovery continues
// while the plugin serves: each call for a claim waits for the recovery of that claim.
type Recovery struct {
	Node RecoverableNode
	// Then, which may be nil, is called when the recovery has ended.
	Then func(context.Context)
	// Patience is how long Begin waits for the end.
	Patience time.Duration
	Log      *slog.Logger

	done chan struct{}
}

// Begin returns when claims may be served: no device of a tenant of an earlier boot counts as clean any more, and the recovery has ended or
// Patience has passed. In the latter case the recovery continues in the group until ctx ends. An error of the recovery ends the group.
func (r *Recovery) Begin(ctx context.Context, g *errgroup.Group) error {
	if err := r.Node.MarkEarlier(ctx); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	r.done = make(chan struct{})
	g.Go(func() error {
		if err := r.run(ctx); err != nil {
			return err
		}
		// The channel is closed only after a success: work that waits for the recovery must not begin after an error, which ends the group.
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

// Await waits for the end of the recovery. It returns false if ctx ends first.
func (r *Recovery) Await(ctx context.Context) bool {
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// run recovers all claims. It only logs the claims whose recovery fails, so that the node's other devices work.
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

// startRecovery begins the recovery. When the recovery has ended, the node's VFs are provisioned, and the functions with the policy "bound"
// are bound.
func (s *service) startRecovery(ctx context.Context, g *errgroup.Group) error {
	s.recordStart(ctx)
	s.vfs = &ProvisionWatch{VFs: s.node.Maintainer, Metrics: s.metrics, Log: s.log}
	s.recovery = &Recovery{Node: s.node, Then: s.vfs.Start, Patience: recoveryPatience, Log: s.log}
	return s.recovery.Begin(ctx, g)
}

// recovered runs work once the recovery has ended. It is for work that must not see records of an earlier boot.
func (s *service) recovered(ctx context.Context, work func(context.Context) error) error {
	if !s.recovery.Await(ctx) {
		return nil
	}
	return work(ctx)
}

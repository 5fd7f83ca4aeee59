package plugin

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Reactivator activates lost partitions of prepared claims again; [node.Node] implements it.
type Reactivator interface {
	Reactivate(ctx context.Context) ([]node.Reactivated, error)
}

// Partitions activates the partitions again that prepared claims lost because Fabric Manager restarted, and reports the claims whose VM
// must be restarted because of it.
type Partitions struct {
	Node       Reactivator
	Reporter   *dra.Reporter
	Attributes dra.Attributes
	Log        *slog.Logger

	mu sync.Mutex // guards lost
	// lost has the UIDs of the claims without an active partition whose loss was reported.
	lost map[string]bool
	// problem is the problem that was logged last. Only Look uses it.
	problem string
}

// Look looks once, and reports whether it activated partitions again, or tried to. It must not be called concurrently with itself.
func (p *Partitions) Look(ctx context.Context) (tried bool) {
	all, err := p.Node.Reactivate(ctx)
	if ctx.Err() != nil {
		return len(all) > 0
	}
	p.log(ctx, err)
	now := map[string]bool{}
	for i := range all {
		if p.report(ctx, &all[i]) {
			now[all[i].Record.ID()] = true
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = now
	return len(all) > 0
}

// report reports once that a claim has no active partition, and returns true while the claim has none. It only logs other errors: they
// pass, or the next sandbox gets them too.
func (p *Partitions) report(ctx context.Context, r *node.Reactivated) (lost bool) {
	claim := slog.String("claim", r.Record.Plan.Claim.String())
	if r.Err == nil {
		p.Log.InfoContext(ctx, "the partition of a prepared claim was lost, and is active again", claim)
		return false
	}
	lost = rule.Classify(r.Err) == rule.PartitionNotActivated
	if lost && p.Lost(r.Record.ID()) {
		return true
	}
	p.Log.WarnContext(ctx, "the partition of a prepared claim is lost", claim, slog.Any("err", r.Err))
	if q, ok := errors.AsType[*prepare.QuarantinedError](r.Err); ok {
		p.Reporter.Lost(q)
	}
	if lost {
		p.Reporter.NotActive(ctx, r.Record, p.Attributes, r.Err)
	}
	return lost
}

// Lost reports whether a prepared claim has no active partition.
func (p *Partitions) Lost(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost[uid]
}

// log logs once why the lost partitions are unknown.
func (p *Partitions) log(ctx context.Context, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != p.problem {
		p.Log.WarnContext(ctx, "can't tell which claims have lost their partition", slog.Any("err", err))
	}
	p.problem = problem
}

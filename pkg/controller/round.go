package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// turn is a node's part in a round.
type turn struct {
	node string
	// failed has the GPUs with an action that failed in this round. They wait for the node's next round, and the others do not.
	failed map[string]bool
}

// round decides about the GPUs of some nodes: first by the caches and then, about those that need it, by one list of
// what the API server has now. Many GPUs that need a list share it.
func (c *Controller) round(ctx context.Context, nodes []string) {
	turns := make([]turn, len(nodes))
	for i, node := range nodes {
		turns[i] = turn{node: node, failed: map[string]bool{}}
	}
	turns = c.act(ctx, c.informers.cached(), turns, c.millis(), false)
	if len(turns) == 0 || ctx.Err() != nil {
		return
	}
	// Taken before the list, whose content is of this time or later.
	now := c.millis()
	objects, err := c.fresh(ctx)
	if err != nil {
		c.config.Metrics.failed("list")
		c.config.Log.WarnContext(ctx, "can't read the cluster: no shared GPU is handed over", slog.Any("err", err))
		for i := range turns {
			c.retry(turns[i].node)
		}
		return
	}
	c.act(ctx, objects, turns, now, true)
}

// act executes the decisions about the GPUs of nodes, and returns the turns of the nodes that need a fresh list. The turns of all other
// nodes end here.
func (c *Controller) act(ctx context.Context, objects *store, turns []turn, now twin.Millis, fresh bool) (unsure []turn) {
	for _, t := range turns {
		needsFresh := false
		view := objects.on(c, t.node)
		for _, g := range view.GPUs(t.node) {
			g.Fresh = fresh
			c.overlaps.report(ctx, c, view, g)
			if t.failed[g.PCI] {
				continue
			}
			d := twin.Decide(g, now)
			needsFresh = needsFresh || d.NeedsFresh
			if d.RequeueAfter > 0 {
				c.queue.AddAfter(t.node, time.Duration(d.RequeueAfter)*time.Millisecond)
			}
			if !c.execute(ctx, view, g, d.Actions) {
				t.failed[g.PCI] = true
			}
		}
		switch {
		case needsFresh:
			unsure = append(unsure, t)
		case len(t.failed) > 0:
			c.retry(t.node)
		default:
			// The queue's delay grows with each failure of a node, until it is forgotten here.
			c.queue.Forget(t.node)
		}
	}
	return unsure
}

// retry asks for a node's next round, after a pause that grows with each failure.
func (c *Controller) retry(node string) { c.queue.AddRateLimited(node) }

// execute executes actions in their order up to the first that fails. It reports whether all were done.
func (c *Controller) execute(ctx context.Context, view *twin.View, g *twin.GPU, actions []twin.Action) bool {
	for _, a := range actions {
		if ctx.Err() != nil {
			return false
		}
		err := c.doInTime(ctx, view, g, a)
		c.report(ctx, g, a, err)
		if err != nil {
			return false
		}
	}
	return true
}

// doInTime is do with a limit in time.
func (c *Controller) doInTime(ctx context.Context, view *twin.View, g *twin.GPU, a twin.Action) error {
	ctx, cancel := context.WithTimeoutCause(ctx, writeLimit, errors.New("no answer in time"))
	defer cancel()
	return c.do(ctx, view, g, a)
}

// report logs and counts the result of an action.
func (c *Controller) report(ctx context.Context, g *twin.GPU, a twin.Action, err error) {
	name, about := describe(a)
	about = append(about, slog.String("action", name), slog.String("gpu", g.PCI))
	switch {
	case err == nil:
		c.config.Metrics.count(a, c.millis())
		c.config.Log.LogAttrs(ctx, slog.LevelInfo, "action done", about...)
	case isConflict(err):
		// Another change was faster. The next decision is about what came of it.
		c.config.Metrics.conflict(name)
		c.config.Log.LogAttrs(ctx, slog.LevelDebug, "object changed: decide again", append(about, slog.Any("err", err))...)
	case ctx.Err() == nil:
		c.config.Metrics.failed(name)
		c.config.Log.LogAttrs(ctx, slog.LevelWarn, "action failed", append(about, slog.Any("err", err))...)
	}
}

// isConflict reports whether the API server refused a write because the object is not as it was when it was decided.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// describe returns the name and the subject of an action, for the log.
func describe(a twin.Action) (string, []slog.Attr) {
	switch a := a.(type) {
	case twin.CreateRule:
		return "create rule", []slog.Attr{slog.String("device", a.Target.String()), slog.String("side", a.Has), slog.String("claim", a.Mark)}
	case twin.TouchRule:
		return "touch rule", []slog.Attr{slog.String("device", a.Rule.Target.String()), slog.String("side", a.Has), slog.String("claim", a.Mark)}
	case twin.DeleteRule:
		return "delete rule", []slog.Attr{slog.String("device", a.Rule.Target.String())}
	case twin.SetCondition:
		return "set condition", []slog.Attr{
			slog.String("claim", strings.Join([]string{a.Claim.Namespace, a.Claim.Name}, "/")), slog.String("type", a.Type),
			slog.Bool("status", a.True), slog.String("reason", string(a.Reason)),
		}
	}
	return "unknown action", nil
}

package guestnet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
)

func (r *run) addRoutes(ctx context.Context, t *target) error {
	for _, asked := range t.routes {
		// What is there is read each time, since two asked routes may exclude each
		// other.
		present, err := r.kernel.hops(ctx)
		if err != nil {
			return t.errorf("%w", err)
		}
		there, err := t.has(present, asked)
		if err != nil {
			return err
		}
		if !there {
			if err := r.addRoute(ctx, t, asked); err != nil {
				return err
			}
		}
		t.result.Routes = append(t.result.Routes, RouteResult{Route: asked, Changed: !there})
	}
	return nil
}

// has reports whether the route is there. It is an error when another one is
// in its place: the kernel has one route to a network for each metric.
func (t *target) has(present []hop, asked Route) (bool, error) {
	if slices.ContainsFunc(present, func(h hop) bool { return h.Route == asked && h.index == t.link.index }) {
		return true, nil
	}
	i := slices.IndexFunc(present, func(h hop) bool {
		return h.To == asked.To && h.Table == asked.Table && h.Metric == asked.Metric
	})
	if i < 0 {
		return false, nil
	}
	return false, t.errorf("add route %s: there is another one to it with metric %d (%s, of interface number %d); ask for another metric, or for a table of its own",
		asked, asked.Metric, present[i].Route, present[i].index)
}

func (r *run) addRoute(ctx context.Context, t *target, asked Route) error {
	err := r.change(ctx, t, "add route "+asked.String(), func() error { return r.kernel.addRoute(t.link.index, asked) })
	if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w; the next hop must be in a network of the interface's addresses", err)
	}
	return err
}

func (r *run) addRules(ctx context.Context, t *target) error {
	present, err := r.kernel.rules(ctx)
	if err != nil {
		return t.errorf("%w", err)
	}
	for _, asked := range t.rules {
		there := slices.Contains(present, asked)
		if !there {
			if err := r.change(ctx, t, "add rule "+asked.String(), func() error { return r.kernel.addRule(asked) }); err != nil {
				return err
			}
		}
		t.result.Rules = append(t.result.Rules, RuleResult{Rule: asked, Changed: !there})
	}
	return nil
}

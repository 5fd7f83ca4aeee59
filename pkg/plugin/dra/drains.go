package dra

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// drainState is the word for how far a drain has come.
func drainState(d *maintain.Draining) publish.DrainState {
	if d.Done() {
		return publish.Drained
	}
	return publish.Draining
}

// DrainStates returns the functions that are drained, and how far. Two drains may share functions.
func DrainStates(drains []maintain.Draining) map[pci.Address]publish.DrainState {
	states := map[pci.Address]publish.DrainState{}
	for i := range drains {
		for _, f := range drains[i].Functions {
			if _, seen := states[f.Address]; !seen {
				states[f.Address] = drainState(&drains[i])
			}
		}
	}
	return states
}

// DrainedDevices finish drains; [maintain.Maintainer] has the methods.
type DrainedDevices interface {
	Drains(ctx context.Context) ([]maintain.Draining, error)
	FinishDrains(ctx context.Context) ([]maintain.Draining, error)
}

// DrainWatch follows the drains of a node, which operators make by a command of
// another process: it brings them to their end, and tells the cluster. It is not
// safe for concurrent use.
type DrainWatch struct {
	Devices  DrainedDevices
	Reporter *Reporter
	Node     string
	Log      *slog.Logger
	// Changed is told that what is published has changed; it must not block.
	Changed func()

	// known are the drains of the last look; nil before the first, which tells of nothing:
	// an earlier plugin has.
	known map[pci.Address]drainView
	said  string
}

// drainView is what of a drain is worth telling when it changes.
type drainView struct {
	state  publish.DrainState
	reason string
	evict  bool
}

// Look looks once. What can't be done now is logged, once, and tried again by the
// next look.
func (w *DrainWatch) Look(ctx context.Context) {
	drains, err := w.Devices.Drains(ctx)
	if err != nil {
		w.warn(ctx, err)
		return
	}
	if slices.ContainsFunc(drains, func(d maintain.Draining) bool { return d.Due() }) {
		var finished []maintain.Draining
		if finished, err = w.Devices.FinishDrains(ctx); err == nil {
			drains = finished
		} // else it may lack some, which are drained all the same
	}
	w.warn(ctx, err)
	now := map[pci.Address]drainView{}
	for i := range drains {
		d := &drains[i]
		now[d.Address] = drainView{drainState(d), d.Reason, d.Evict}
	}
	changed := w.report(ctx, now, drains)
	w.known = now
	if changed {
		w.Changed()
	}
}

// report tells of what has changed since the last look.
func (w *DrainWatch) report(ctx context.Context, now map[pci.Address]drainView, drains []maintain.Draining) bool {
	first, changed := w.known == nil, false
	for a, v := range now {
		if w.known[a] == v {
			continue
		}
		changed = true
		if !first {
			w.event(ctx, string(v.state), fmt.Sprintf("%s is taken out of use (%s): %s", a, v.reason, stateWords(v.state)))
		}
	}
	for a := range w.known {
		if _, still := now[a]; !still {
			changed = true
			w.event(ctx, "Undrained", fmt.Sprintf("%s %s", a, undrainedWords(a, drains)))
		}
	}
	return changed
}

// undrainedWords say what the end of a function's drain means, which another may cover too.
func undrainedWords(a pci.Address, drains []maintain.Draining) string {
	for i := range drains {
		if drains[i].Has(a) {
			return fmt.Sprintf("is out of use still, with %s (%s)", drains[i].Address, drains[i].Reason)
		}
	}
	return "is in use again"
}

func stateWords(s publish.DrainState) string {
	if s == publish.Drained {
		return "no claim has it, and it is with the driver that it came from"
	}
	return "no new claim gets it; who has it keeps it"
}

func (w *DrainWatch) event(ctx context.Context, reason, note string) {
	w.Log.InfoContext(ctx, "drain", slog.String("state", reason), slog.String("what", note))
	w.Reporter.NodeEvent(w.Node, corev1.EventTypeNormal, reason, "Drain", note)
}

func (w *DrainWatch) warn(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.said {
		w.Log.WarnContext(ctx, "drain not finished", slog.Any("err", err))
	}
	w.said = text
}

// NodeEvent records an event on the node, by the name under which the kubelet's own are.
func (r *Reporter) NodeEvent(node, eventType, reason, action, note string) {
	r.record(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, nil, eventType, reason, action, note)
}

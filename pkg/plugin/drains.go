package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// drainEvery is the pause between two looks for drains, which commands in other processes begin. Without drains, a look only reads one
// directory that does not exist.
const drainEvery = 2 * time.Second

// watchMetricsOfDrains adds the drains to the metrics.
func (s *service) watchMetricsOfDrains(ctx context.Context) {
	s.metrics.WatchDrains(func() map[pci.Address]rule.Code {
		drains, _ := s.node.Maintainer.Drains(ctx)
		return dra.DrainStates(drains)
	})
}

// watchDrains follows drains until ctx ends.
func (s *service) watchDrains(ctx context.Context) error {
	watch := DrainWatch{Devices: s.node.Maintainer, Reporter: s.reporter, Node: s.config.Node.Name, Log: s.log, Changes: s.changes}
	return every(ctx, drainEvery, watch.Look)
}

// DrainedDevices finishes drains; [maintain.Maintainer] implements it.
type DrainedDevices interface {
	Drains(ctx context.Context) ([]maintain.Draining, error)
	FinishDrains(ctx context.Context) ([]maintain.Draining, error)
}

// DrainWatch follows the drains of a node, which an operator's command makes in another process: it finishes them and
// reports them to the cluster. It is not safe for concurrent use.
type DrainWatch struct {
	Devices  DrainedDevices
	Reporter *dra.Reporter
	Node     string
	Log      *slog.Logger
	// Changes is woken when devices must be published again.
	Changes dra.Waker

	// known are the drains of the last look. It is nil before the first look, which reports no drains: an earlier instance has reported
	// them.
	known  map[pci.Address]drainView
	logged string
}

// drainView is the part of a drain whose changes are reported.
type drainView struct {
	state  rule.Code
	reason string
	evict  bool
}

// Look looks once. It logs an error once, and the next look tries again.
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
		} // after an error the answer may lack drains
	}
	w.warn(ctx, err)
	now := map[pci.Address]drainView{}
	for i := range drains {
		d := &drains[i]
		now[d.Address] = drainView{dra.DrainState(d), d.Reason, d.Evict}
	}
	changed := w.report(ctx, now, drains)
	w.known = now
	if changed {
		w.Changes.Wake()
	}
}

// report reports what changed since the last look.
func (w *DrainWatch) report(ctx context.Context, now map[pci.Address]drainView, drains []maintain.Draining) bool {
	first, changed := w.known == nil, false
	for a, v := range now {
		if w.known[a] == v {
			continue
		}
		changed = true
		// The drains of the first look are not news: the instance that saw them begin has sent their Events.
		if !first {
			w.event(ctx, v.state, fmt.Sprintf("%s is being drained (%s): %s", a, v.reason, stateWords(v.state)))
		}
	}
	for a := range w.known {
		if _, still := now[a]; !still {
			changed = true
			w.event(ctx, rule.Undrained, fmt.Sprintf("%s %s", a, undrainedWords(a, drains)))
		}
	}
	return changed
}

// undrainedWords describes the end of a function's drain. Another drain may still include the function.
func undrainedWords(a pci.Address, drains []maintain.Draining) string {
	for i := range drains {
		if drains[i].Has(a) {
			return fmt.Sprintf("is still drained, with %s (%s)", drains[i].Address, drains[i].Reason)
		}
	}
	return "is in use again"
}

func stateWords(s rule.Code) string {
	if s == rule.Drained {
		return "no claim has it, and it is back on its original driver"
	}
	return "no new claim gets it; a claim that has it keeps it"
}

func (w *DrainWatch) event(ctx context.Context, reason rule.Code, note string) {
	w.Log.InfoContext(ctx, "drain", slog.String("state", string(reason)), slog.String("what", note))
	w.Reporter.NodeEvent(w.Node, corev1.EventTypeNormal, reason, "Drain", note)
}

func (w *DrainWatch) warn(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.logged {
		w.Log.WarnContext(ctx, "drain not finished", slog.Any("err", err))
	}
	w.logged = text
}

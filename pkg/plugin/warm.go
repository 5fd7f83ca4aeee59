package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
)

const (
	// warmEvery is the pause between two looks that also return devices which need not be warm any more to their drivers, and that try
	// failed devices again.
	warmEvery = time.Minute
	// warmDelay is the pause from a claim or another change until devices are made warm, so that they don't compete with the
	// claims of a pod that is starting.
	warmDelay = 2 * time.Second
)

// keepWarm keeps devices warm until ctx ends.
func (s *service) keepWarm(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	tick := time.NewTicker(warmEvery)
	defer tick.Stop()
	watch := WarmWatch{Devices: s.node.Maintainer, Metrics: s.metrics, Log: s.log}
	return watch.Follow(ctx, snapshots, s.changes.warm, tick.C)
}

// WarmDevices keeps devices warm; [maintain.Maintainer] implements it.
type WarmDevices interface {
	KeepWarm(ctx context.Context, how maintain.Warming) ([]maintain.WarmPool, error)
}

// WarmWatch keeps as many free devices ready for claims as the node config wants, in the background. It is not safe for
// concurrent use.
type WarmWatch struct {
	Devices WarmDevices
	Metrics *metrics.Metrics
	Log     *slog.Logger

	// drivers describes the functions and their drivers of the last snapshot.
	drivers string
	// failed are the devices that could not be made warm since the last tick. logged is the reason that was logged last for a device. ready
	// is the text of a rule's warm devices that was logged last.
	failed map[pci.Address]bool
	logged map[pci.Address]string
	ready  map[string]string
	// problem was logged last.
	problem string
}

// Follow makes devices warm after each change of the node and its claims, until ctx ends. At each tick it also returns devices that need
// not be warm.
func (w *WarmWatch) Follow(ctx context.Context, snapshots <-chan *device.Snapshot, claimed <-chan struct{}, tick <-chan time.Time) error {
	w.Look(ctx, true) // the config may have changed
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case snap := <-snapshots:
			if !w.changed(snap) {
				continue
			}
		case <-claimed:
		case <-due:
			due = nil
			w.Look(ctx, false)
			continue
		case <-tick:
			// The tick tries the failed devices again. Without this wait, each change of the node would repeat their resets.
			w.failed = nil
			w.Look(ctx, true)
			continue
		}
		if due == nil {
			due = time.After(warmDelay)
		}
	}
}

// changed reports whether a function has come, left, or changed its driver since the last snapshot.
func (w *WarmWatch) changed(snap *device.Snapshot) bool {
	var b strings.Builder
	for i := range snap.Functions {
		fmt.Fprintln(&b, snap.Functions[i].Address, snap.Functions[i].Driver)
	}
	before := w.drivers
	w.drivers = b.String()
	return before != w.drivers
}

// Look makes devices warm once, and with back also returns devices that need not be warm. It logs changes.
func (w *WarmWatch) Look(ctx context.Context, back bool) {
	pools, err := w.Devices.KeepWarm(ctx, maintain.Warming{Skip: func(a pci.Address) bool { return w.failed[a] }, Return: back})
	if ctx.Err() != nil {
		return
	}
	if isNew(&w.problem, err) {
		w.Log.ErrorContext(ctx, "devices not kept warm", slog.Any("err", err))
	}
	// After an error without pools, the metrics keep the last known state: 0 would look like a node without warm devices.
	if err == nil || len(pools) > 0 {
		w.Metrics.ObserveWarm(pools)
	}
	for i := range pools {
		w.report(ctx, &pools[i])
	}
}

// report logs which devices of a rule are warm, and why others are not, unless it logged the same before.
func (w *WarmWatch) report(ctx context.Context, pool *maintain.WarmPool) {
	log := w.Log.With(slog.String("rule", pool.Rule))
	if w.failed == nil {
		w.failed = map[pci.Address]bool{}
	}
	if w.logged == nil {
		w.logged, w.ready = map[pci.Address]string{}, map[string]string{}
	}
	for _, a := range slices.SortedFunc(maps.Keys(pool.Failed), pci.Address.Compare) {
		w.failed[a] = true
		if why := pool.Failed[a].Error(); w.logged[a] != why {
			w.logged[a] = why
			log.WarnContext(ctx, "device not kept warm", slog.String("pci", a.String()), slog.String("problem", why))
		}
	}
	for _, a := range pool.Ready {
		delete(w.logged, a)
	}
	if now := fmt.Sprint(pool.Ready); w.ready[pool.Rule] != now {
		w.ready[pool.Rule] = now
		log.InfoContext(ctx, "warm devices", slog.Int("wanted", pool.Want), slog.Any("pci", pool.Ready))
	}
}

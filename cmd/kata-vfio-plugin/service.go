package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check/monitor"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/drift"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// service is one run of the plugin: its parts in the order in which they start.
type service struct {
	opts  *options
	run   *runOptions
	log   *slog.Logger
	fatal context.CancelCauseFunc

	node      *node.Node
	watcher   *inventory.Watcher
	metrics   *metrics.Metrics
	publisher *dra.Publisher
	monitor   *monitor.Monitor
	notes     *dra.RunFiles
	attempts  *dra.Attempts
	probes    *serving.Server
	scrapes   *serving.Server
	plugin    *dra.Plugin
	reporter  *dra.Reporter
	outbox    *dra.Outbox
	sandboxes sandboxes
	helper    *kubeletplugin.Helper
	// vfs makes the VFs of the node's config, and binds what stands bound.
	vfs *dra.ProvisionWatch
	// problems are those of the node's config that were logged last.
	problems []nodeconfig.Problem
	// changed wakes the publisher after a claim.
	changed chan struct{}
}

// start brings the parts up and serves until ctx ends.
func (s *service) start(ctx context.Context) error {
	klog.SetSlogLogger(s.log)
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(s.log.Handler()))
	s.changed = make(chan struct{}, 1)
	if err := s.openNode(ctx); err != nil {
		return err
	}
	if err := s.recover(ctx); err != nil {
		return err
	}
	s.notes = dra.NewRunFiles(s.opts.node.RunPath())
	health := dra.NewHealth()
	s.metrics.WatchReadiness(health.Ready)
	s.publisher = dra.NewPublisher(s.run.nodeName, s.node.PlanNode, s.node.Journal.List, health, s.metrics)
	s.publisher.Drains = s.drains
	s.attempts = &dra.Attempts{Kept: dra.AttemptsKept, Changed: s.wake}
	s.publisher.Attempts = s.attempts.Failing
	s.openMonitor()
	if err := s.judge(ctx); err != nil {
		return err
	}
	if err := s.listen(ctx, health); err != nil {
		return err
	}
	if err := s.join(ctx, health); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "serving", slog.String("node", s.run.nodeName), slog.String("probes", s.probes.Addr().String()),
		slog.String("metrics", s.scrapes.Addr().String()))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.watcher.Run(ctx) })
	g.Go(func() error { return s.probes.Serve(ctx) })
	g.Go(func() error { return s.scrapes.Serve(ctx) })
	g.Go(func() error { return s.publish(ctx) })
	g.Go(func() error { return s.watchChecks(ctx) })
	g.Go(func() error { return s.watchLedger(ctx) })
	g.Go(func() error { return s.reporter.Run(ctx) })
	g.Go(func() error { return s.outbox.Run(ctx) })
	g.Go(func() error { return s.watchDrains(ctx) })
	g.Go(func() error { return s.repair(ctx) })
	g.Go(func() error { return s.provision(ctx) })
	g.Go(func() error { return s.syncStatuses(ctx) })
	g.Go(func() error { return s.lookAtDevices(ctx) })
	g.Go(func() error { return s.watchDisk(ctx) })
	s.runSandboxes(ctx, g)
	return g.Wait()
}

// openNode opens the node with a watcher as its inventory.
func (s *service) openNode(ctx context.Context) error {
	s.opts.node.Inventory = func(fs *sysfs.FS) (prepare.Inventory, error) {
		names, err := inventory.LoadNames(fs)
		if err != nil {
			s.log.WarnContext(ctx, "no model names", slog.Any("err", err))
		}
		s.metrics.WatchBootstrap(func() (*drift.Record, error) { return drift.Read(fs) })
		s.watcher, err = inventory.Watch(ctx, fs, inventory.WithNames(names))
		return s.watcher, err
	}
	s.metrics = metrics.New(s.opts.node.Records().List, s.stuck)
	s.metrics.WatchDisks(s.disks, journal.FreeBytes)
	s.opts.node.Ledger.Observe = s.metrics.ObserveLedger
	var err error
	if s.node, err = s.opts.open(s.metrics.Observe); err != nil {
		return err
	}
	s.metrics.WatchVFs(s.node.Journal.List, s.node.Counters, s.run.metrics.tenants)
	s.watchMetricsOfDrains(ctx)
	return nil
}

// stuck counts the writes that are past their deadline, for the metrics.
func (s *service) stuck() int {
	if s.node == nil {
		return 0
	}
	return len(s.node.Kernel.Stuck())
}

// recover recovers what an earlier instance left and binds what stands bound.
// What can't be settled is logged and stays for a later try: the other
// devices of the node are not to suffer for it.
func (s *service) recover(ctx context.Context) error {
	s.recordStart(ctx)
	r, err := s.node.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	s.log.InfoContext(ctx, "recovered", slog.Int("kept", len(r.Kept)), slog.Int("undone", len(r.Undone)),
		slog.Int("released", len(r.Released)), slog.Int("quarantined", len(r.Quarantined)),
		slog.Any("removedSpecs", r.Specs), slog.Any("strays", r.Orphans), slog.Any("upgraded", r.Upgraded))
	for _, err := range r.Unfinished {
		s.log.ErrorContext(ctx, "not recovered", slog.Any("err", err))
	}
	s.vfs = &dra.ProvisionWatch{VFs: s.node, Metrics: s.metrics, Log: s.log}
	s.vfs.Start(ctx)
	return nil
}

// recordStart writes to the ledger that the plugin starts, and by which config. One
// that can't be written is logged: claims are refused then, each with the reason,
// but what is on the node can be seen.
func (s *service) recordStart(ctx context.Context) {
	e := ledger.Event{Type: ledger.Start, Result: ledger.OK}
	if config, err := json.Marshal(s.node.Node); err == nil {
		e.Config = fmt.Sprintf("%x", sha256.Sum256(config))
	}
	signed, err := s.node.History.Append(ctx, e)
	if err != nil {
		s.log.ErrorContext(ctx, "ledger can't be written: claims are refused until it can", slog.Any("err", err))
		return
	}
	s.log.InfoContext(ctx, "ledger", slog.String("checkpoint", ledger.OneLine(signed)))
}

// join meets the API server and registers with the kubelet.
func (s *service) join(ctx context.Context, health *dra.Health) error {
	client, err := newClient(s.run.kubeconfig, s.metrics)
	if err != nil {
		return err
	}
	recorder, err := newRecorder(ctx, client)
	if err != nil {
		return err
	}
	asked := &dra.Asked{Client: client}
	s.publisher.Asked = asked
	s.publisher.Existing = func(ctx context.Context) (dra.Consumed, error) {
		return dra.PublishedDevices(ctx, client, s.run.nodeName)
	}
	s.reporter = dra.NewReporter(client, recorder, s.log)
	s.reporter.Anchor, s.reporter.Uplink = s.node.History.Checkpoint, s.node.Uplink
	s.outbox = dra.NewOutbox(client, s.run.nodeName, filepath.Join(filepath.Dir(s.opts.node.JournalDir()), "events.json"), s.log)
	s.reporter.Final = s.outbox
	if err := s.openSandboxes(ctx, client); err != nil {
		return err
	}
	s.plugin = dra.NewPlugin(dra.PluginConfig{
		Client:     client,
		Claims:     s.node,
		Gate:       &dra.Gate{Client: client, NodeName: s.run.nodeName, Handlers: s.node.Node.AllowedHandlers},
		Attributes: s.publisher.Attributes, Health: health, Reporter: s.reporter, Metrics: s.metrics, Log: s.log, Refused: s.node.Refused,
		Confirmed: func(uid string) { s.sandboxes.table.Withdraw(uid, "") },
		Attempts:  s.attempts, Asked: asked, Changed: s.wake, Fatal: s.fatal,
	})
	s.helper, err = dra.Kubelet{
		Client: client, NodeName: s.run.nodeName, PodUID: s.run.podUID,
		PluginDir: s.run.pluginDir, RegistryDir: s.run.registryDir, MetadataCDIDir: s.run.hostCDIDir,
		GRPCVerbosity: s.run.grpcVerbosity,
	}.Register(ctx, s.plugin)
	return err
}

// judge looks at the node before anything of it is published.
func (s *service) judge(ctx context.Context) error {
	snap, err := s.watcher.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("judge the node: %w", err)
	}
	if err := s.notes.Keep(snap); err != nil { // a check compares with it
		s.log.WarnContext(ctx, "not noted", slog.Any("err", err))
	}
	s.monitor.Look(ctx, snap)
	return nil
}

// watchChecks looks again whenever the node changes.
func (s *service) watchChecks(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	return s.monitor.Run(ctx, snapshots)
}

// publishEvery is how often `run` publishes though nothing has changed: what failed is
// tried again, and devices that are withdrawn go after a while.
const publishEvery = 30 * time.Second

// publish publishes at each new snapshot, after each claim and every now and then.
func (s *service) publish(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	var snap *device.Snapshot
	unpublished := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case snap = <-snapshots:
		case <-s.changed:
		case <-tick.C:
		}
		if snap == nil {
			continue
		}
		s.checkConfig(ctx, snap)
		unpublished = s.publishOnce(ctx, snap, unpublished)
		s.note(ctx, snap)
	}
}

// publishOnce publishes once, and returns why it did not. That is logged unless it was
// logged last.
func (s *service) publishOnce(ctx context.Context, snap *device.Snapshot, last string) string {
	err := s.publisher.Publish(ctx, s.helper, snap)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != last {
		s.log.ErrorContext(ctx, "not published", slog.Any("err", err))
	}
	return err.Error()
}

// note leaves for the audit what it can't see for itself. Serving does not depend
// on it: what can't be written is logged, and tried again with the next snapshot.
func (s *service) note(ctx context.Context, snap *device.Snapshot) {
	published := s.publisher.Published()
	published.BootID, published.Config = snap.Host.BootID, s.opts.node.Node
	if err := errors.Join(s.notes.Keep(snap), s.notes.Publish(published)); err != nil {
		s.log.WarnContext(ctx, "not noted", slog.Any("err", err))
	}
}

// checkConfig logs where the node's config does not fit the node, once each
// time that this changes.
func (s *service) checkConfig(ctx context.Context, snap *device.Snapshot) {
	problems := nodeconfig.Select(s.node.Config.Node, snap).Problems()
	if slices.Equal(problems, s.problems) {
		return
	}
	s.problems = problems
	for _, p := range problems {
		s.log.WarnContext(ctx, "node config does not fit the node", slog.String("rule", p.Rule), slog.String("problem", p.Text), slog.String("fix", p.Fix))
	}
}

// wake makes the publisher look again; it never blocks.
func (s *service) wake() {
	select {
	case s.changed <- struct{}{}:
	default: // a look is due already
	}
}

// stop takes the parts down: first the sockets, so that the kubelet asks
// nothing more, then what it asked for comes to its end.
func (s *service) stop() error {
	if s.helper != nil {
		s.helper.Stop()
		s.plugin.Wait()
	}
	for _, server := range []*serving.Server{s.probes, s.scrapes} {
		if server != nil {
			server.Close()
		}
	}
	err := s.sandboxes.close()
	if s.node != nil {
		err = errors.Join(err, s.node.Close())
	}
	return err
}

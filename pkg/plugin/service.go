// Package plugin is the daemon on a node: one service that publishes devices, prepares claims for the kubelet,
// answers Kata and the container runtime, and watches the node.
package plugin

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Config says what a run of the plugin serves, and where.
type Config struct {
	// Node has the paths of the node's files. Its Name and its Node, the config, are required. The service sets
	// Inventory and Observe.
	Node node.Config
	Log  *slog.Logger
	// PodUID distinguishes the instances of a rolling update; empty for the only instance.
	PodUID string
	// Kubeconfig names the API server; empty in a pod.
	Kubeconfig string
	// PluginDir, RegistryDir and MetadataCDIDir are as in [dra.Kubelet].
	PluginDir, RegistryDir, MetadataCDIDir string
	// GRPCVerbosity is the klog verbosity at which gRPC calls are logged; -1 for never.
	GRPCVerbosity int
	// Probes is the Unix socket of the probes; empty if there is none.
	Probes string
	// OTLP is the URL of the collector of spans. If it is empty, the URL of the environment is used, if there is one.
	OTLP string
	// Pprof is the loopback address of profiles; empty if there is none.
	Pprof   string
	Metrics Scraping
	// PodResources is the socket on which Kata asks for devices. KubeletPodResources is the kubelet's own socket.
	PodResources, KubeletPodResources string
	// NRI is the container runtime's NRI socket.
	NRI string
	// TenantsNamespace has the ConfigMap of kata-vfio-controller with the IDs of tenants. It is read if the node config has exclusive
	// domains.
	TenantsNamespace string
	// ExemptNamespaces are the namespaces that NRI's checks trust with the node's devices.
	ExemptNamespaces []string
	Checks           Checks
	// ChecksEvery is the longest time between two looks of the checks.
	ChecksEvery time.Duration
}

// Scraping says where metrics are served, to which clients, and which metrics.
type Scraping struct {
	Serving serving.Scraping
	// Tenants adds claims and their namespaces to the labels.
	Tenants bool
}

// Run serves until ctx ends, or until a part of the service ends it with an error.
func Run(ctx context.Context, c Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &service{config: c, log: c.Log, fatal: cancel}
	// ctx has ended by the time the parts are stopped, so they get a context without its cancellation.
	err := errors.Join(s.start(ctx), s.stop(context.WithoutCancel(ctx)))
	// A part that ends the service through fatal leaves its error as the cause, and the others only see ctx end.
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// service is one run of the plugin: its parts in the order in which they start.
type service struct {
	config Config
	log    *slog.Logger
	fatal  context.CancelCauseFunc

	node      *node.Node
	client    kubernetes.Interface
	watcher   *inventory.Watcher
	metrics   *metrics.Metrics
	tracer    *Tracer
	publisher *dra.Publisher
	monitor   *Monitor
	notes     *RunFiles
	// bootstrap has the record of bootstrap's last verify.
	bootstrap bootstrapRecord

	probes    *serving.Server // nil without probes
	scrapes   *serving.Server
	profiles  *serving.Server // nil without profiles
	plugin    *dra.Plugin
	reporter  *dra.Reporter
	outbox    *dra.Outbox
	stages    *StageWatch
	sandboxes sandboxes
	helper    *kubeletplugin.Helper
	// vfs creates the VFs of the node's config, and binds the functions of policy bound.
	vfs *ProvisionWatch
	// refused is why the node refused all new claims in the latest Publish; empty if it did not.
	refused string
	// recovery recovers the claims of an earlier instance.
	recovery *Recovery
	// noFabric is why the last request to Fabric Manager failed; empty if it succeeded.
	noFabric string
	// partitions activates lost partitions again.
	partitions *Partitions
	// problems of the node's config were logged last.
	problems []rule.Verdict
	// changes wakes the publisher and what keeps devices warm.
	changes changes
	// heldByLost wakes the repair, which looks for claims that lost their devices.
	heldByLost chan struct{}
}

// start starts the parts and serves until ctx ends. The probes start first: their answer shows that the process lives, whatever the other
// parts wait for, and the answer of `probe ready` shows when the other parts serve.
func (s *service) start(ctx context.Context) error {
	if err := kube.LogLibraries(ctx, s.log); err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(s.log.Handler()))
	s.changes, s.heldByLost = newChanges(), make(chan struct{}, 1)
	health := dra.NewHealth()
	if err := s.listenProbes(ctx, health); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if s.probes != nil {
		g.Go(func() error { return s.probes.Serve(ctx) })
	}
	// open adds the other parts to the group and returns, so Wait lasts as long as they serve.
	g.Go(func() error { return s.open(ctx, g, health) })
	return g.Wait()
}

// open starts all parts but the probes, and serves until ctx ends.
func (s *service) open(ctx context.Context, g *errgroup.Group, health *dra.Health) error {
	if err := s.openTracer(ctx); err != nil {
		return err
	}
	if err := s.openNode(ctx); err != nil {
		return err
	}
	s.askFabric(ctx) // the recovery needs the active partitions
	// The recovery starts before the kubelet can call: a device that a tenant of an earlier boot had must be marked first.
	if err := s.startRecovery(ctx, g); err != nil {
		return err
	}
	s.notes = NewRunFiles(s.config.Node.RunPath())
	s.metrics.WatchReadiness(health.Ready)
	if err := s.openMonitor(); err != nil {
		return err
	}
	// The checks come before the first publication, which would otherwise offer devices that fail one.
	if err := s.judge(ctx); err != nil {
		return err
	}
	// If an address is in use, the start must fail here, before the kubelet hands over claims.
	if err := s.listen(ctx); err != nil {
		return err
	}
	if err := s.join(ctx, health); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "serving", slog.String("node", s.config.Node.Name), slog.String("probes", s.config.Probes),
		slog.String("metrics", s.scrapes.Addr().String()))
	s.serve(ctx, g)
	return nil
}

// serve serves and follows the node until ctx ends.
func (s *service) serve(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return s.watcher.Run(ctx) })
	for _, server := range []*serving.Server{s.scrapes, s.profiles} {
		if server != nil {
			g.Go(func() error { return server.Serve(ctx) })
		}
	}
	g.Go(func() error { return s.publish(ctx) })
	g.Go(func() error { return s.settle(ctx) })
	g.Go(func() error { return s.watchChecks(ctx) })
	g.Go(func() error { return s.watchLedger(ctx) })
	g.Go(func() error { return s.reporter.Run(ctx) })
	g.Go(func() error { return s.outbox.Run(ctx) })
	g.Go(func() error { return s.watchDrains(ctx) })
	g.Go(func() error { return s.watchStages(ctx) })
	g.Go(func() error { return s.syncStatuses(ctx) })
	g.Go(func() error { return s.lookAtDevices(ctx) })
	g.Go(func() error { return s.watchDisk(ctx) })
	g.Go(func() error { return s.watchHealth(ctx) })
	g.Go(func() error { return s.watchFabric(ctx) })
	g.Go(func() error { return s.recovered(ctx, s.repair) })
	g.Go(func() error { return s.recovered(ctx, s.provision) })
	g.Go(func() error { return s.recovered(ctx, s.keepWarm) })
	s.runSandboxes(ctx, g)
}

// openTracer opens the tracer, whose errors go to the log.
func (s *service) openTracer(ctx context.Context) error {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		s.log.WarnContext(ctx, "spans not exported", slog.Any("err", err))
	}))
	var err error
	s.tracer, err = OpenTracer(ctx, TraceConfig{Endpoint: s.config.OTLP, Node: s.config.Node.Name, Version: metrics.ReadBuild().Version})
	return err
}

// openNode opens the node with a watcher as its inventory.
func (s *service) openNode(ctx context.Context) error {
	s.config.Node.Inventory = func(fs *sysfs.FS) (effects.Inventory, error) {
		names, err := inventory.LoadNames(fs)
		if err != nil {
			s.log.WarnContext(ctx, "no model names", slog.Any("err", err))
		}
		s.bootstrap = bootstrapRecord{fs}
		s.metrics.WatchBootstrap(s.bootstrap)
		s.watcher, err = inventory.Watch(ctx, fs, inventory.WithNames(names))
		return s.watcher, err
	}
	s.config.Node.Checks, s.config.Node.Server = monitoredChecks{s}, podres.Socket(s.config.PodResources)
	s.metrics = metrics.New(s.config.Node.Records(), s.stuck)
	s.metrics.ShowBuild(metrics.ReadBuild())
	s.metrics.WatchDisks(s.config.Node.Reserves())
	s.config.Node.Ledger.Metrics = s.metrics
	s.config.Node.Observe = func(e effects.Event) {
		s.metrics.Observe(e)
		s.tracer.Observe(e)
	}
	s.config.Node.Tracer = s.tracer
	var err error
	if s.node, err = node.Open(s.config.Node); err != nil {
		return err
	}
	s.metrics.WatchQuarantines(s.node.Parts.Journal, s.namesTenants())
	s.metrics.WatchVFs(s.node.Parts.Journal, s.node.PFs, s.config.Metrics.Tenants)
	s.watchMetricsOfDrains(ctx)
	return nil
}

// bootstrapRecord is the file with the result of bootstrap's last verify.
type bootstrapRecord struct{ fs *sysfs.FS }

// Read implements [metrics.BootstrapRecord].
func (b bootstrapRecord) Read() (*state.Record, error) { return state.ReadRecord(b.fs) }

// stuck counts the writes that are past their deadline, for the metrics.
func (s *service) stuck() int {
	if s.node == nil {
		return 0
	}
	return len(s.node.Kernel.Stuck())
}

// recordStart writes the start and the hash of the node config to the ledger. It only logs an error: claims are then
// refused with the reason, but the node's devices are still published.
func (s *service) recordStart(ctx context.Context) {
	e := ledger.Event{Type: ledger.Start, Result: ledger.OK}
	if digest, err := nodeconfig.Digest(s.node.Node); err == nil {
		e.Config = digest
	}
	signed, err := s.node.History.Append(ctx, e)
	if err != nil {
		s.log.ErrorContext(ctx, "ledger can't be written: claims are refused until it can", slog.Any("err", err))
		return
	}
	s.log.InfoContext(ctx, "ledger", slog.String("checkpoint", ledger.OneLine(signed)))
}

// stop stops the parts. It closes the kubelet's sockets first, and waits for the calls in progress.
func (s *service) stop(ctx context.Context) error {
	if s.helper != nil {
		// Stop ends new calls. Wait lets those in progress finish: the journal closes after them.
		s.helper.Stop()
		s.plugin.Wait()
	}
	for _, server := range []*serving.Server{s.probes, s.scrapes, s.profiles} {
		if server != nil {
			server.Close()
		}
	}
	err := s.sandboxes.close()
	if s.node != nil {
		// Last, because all others may still write to the journal and the ledger.
		err = errors.Join(err, s.node.Close())
	}
	if s.tracer != nil {
		s.tracer.Close(ctx)
	}
	return err
}

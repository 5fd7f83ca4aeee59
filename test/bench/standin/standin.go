// Package standin runs what a plugin does at the API server, with the plugin's own code: its client, its slices and their
// watch, its Events, and its looks at claims. Behind it is a made-up node instead of a kernel, a kubelet and a runtime, so
// that one process has room for a thousand.
package standin

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

const (
	// vfs is the number of the node's VFs.
	vfs = 2
	// Slices is the number of ResourceSlices of a stand-in's node: the GPU's, and the VFs'.
	Slices = 2
	// repairEvery and statusEvery are the plugin's own pauses, for stand-ins that keep together.
	repairEvery, statusEvery = 5 * time.Minute, time.Minute
)

// Config says for which node a stand-in stands.
type Config struct {
	// Node is the node's name. A Node object must exist.
	Node string
	// Server is how to reach the API server. The stand-in changes it. Each stand-in needs its own Server with a Dial of its
	// own, because otherwise stand-ins share connections.
	Server *rest.Config
	// Dir is an existing directory of its own, with a short path: it has sockets.
	Dir string
	// Records are the node's prepared claims.
	Records []*journal.Record
	// Spread is the longest pause before the first request; [dra.StartSpread] in the plugin.
	Spread time.Duration
	// Together leaves out what spreads the requests of many nodes, and protobuf, for comparison.
	Together bool
}

// StandIn is one plugin's side of the API server.
type StandIn struct {
	Config
	client    kubernetes.Interface
	metrics   *metrics.Metrics
	publisher *dra.Publisher
	reporter  *dra.Reporter
	outbox    *dra.Outbox
	changed   wakes
	log       *slog.Logger
}

// Run runs a stand-in until ctx ends. It logs nothing.
func Run(ctx context.Context, c Config) error {
	ctx = klog.NewContext(ctx, logr.Discard())
	s := &StandIn{Config: c, changed: make(wakes, 1), log: slog.New(slog.DiscardHandler)}
	s.metrics = metrics.New(journalOf(s.Records), func() int { return 0 })
	if err := s.connect(ctx); err != nil {
		return fmt.Errorf("stand-in of %s: %w", c.Node, err)
	}
	plug := s.plugin()
	for _, dir := range []string{"registry", "cdi"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, dir), 0o700); err != nil {
			return fmt.Errorf("stand-in of %s: %w", c.Node, err)
		}
	}
	helper, err := dra.Kubelet{
		Client: s.client, NodeName: c.Node, GRPCVerbosity: -1,
		PluginDir: filepath.Join(c.Dir, "p"), RegistryDir: filepath.Join(c.Dir, "registry"), MetadataCDIDir: filepath.Join(c.Dir, "cdi"),
	}.Register(ctx, plug)
	if err != nil {
		return fmt.Errorf("stand-in of %s: %w", c.Node, err)
	}
	defer helper.Stop()
	return s.serve(ctx, helper, plug)
}

// connect makes the client and what works with it.
func (s *StandIn) connect(ctx context.Context) error {
	var err error
	if s.Together {
		s.Server.QPS, s.Server.Burst = 50, 100
		s.client, err = kubernetes.NewForConfig(s.Server)
	} else {
		s.client, err = plugin.NewClient(s.Server, s.metrics)
	}
	if err != nil {
		return err
	}
	recorder, err := dra.NewRecorder(ctx, s.client, s.Node)
	if err != nil {
		return err
	}
	s.outbox = dra.NewOutbox(s.client, s.Node, filepath.Join(s.Dir, "events.json"), s.log)
	s.reporter = dra.NewReporter(dra.ReporterConfig{Client: s.client, Recorder: recorder, Log: s.log, Final: s.outbox})
	return nil
}

// plugin returns the plugin that the kubelet would call, and makes its publisher.
func (s *StandIn) plugin() *dra.Plugin {
	health := dra.NewHealth()
	c := dra.PublisherConfig{
		NodeName: s.Node, Node: facts{s.Node}, Records: journalOf(s.Records), Health: health, Metrics: s.metrics,
		Cluster: dra.ClusterDevices{Client: s.client, Node: s.Node}, Changes: s.changed,
	}
	if !s.Together {
		c.Spread = s.Spread
	}
	s.publisher = dra.NewPublisher(c)
	return dra.NewPlugin(dra.PluginConfig{
		Client: s.client, Gate: &dra.Gate{Client: s.client, NodeName: s.Node}, Publisher: s.publisher, Health: health,
		Reporter: s.reporter, Metrics: s.metrics, Log: s.log, Changes: s.changed, Fatal: func(error) {},
	})
}

// serve runs the loops of the plugin that ask the API server.
func (s *StandIn) serve(ctx context.Context, published dra.Slices, plug *dra.Plugin) error {
	snapshots := make(chan *device.Snapshot, 1)
	snapshots <- Snapshot()
	statuses := &dra.StatusSync{Reporter: s.reporter, Records: journalOf(s.Records), Attributes: s.publisher.Attributes}
	repair := &plugin.Repair{
		Client: s.client, Node: s.Node, Records: journalOf(s.Records), Orphans: noOrphans{}, Claims: plug,
		Processes: allRun{}, Reporter: s.reporter, Metrics: s.metrics, Log: s.log, Now: time.Now,
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return plugin.Publishing{Publisher: s.publisher, Slices: published, Changed: s.changed, Log: s.log}.Follow(ctx, snapshots)
	})
	g.Go(func() error { return s.reporter.Run(ctx) })
	g.Go(func() error { return s.outbox.Run(ctx) })
	if s.Together {
		g.Go(func() error { repair.Look(ctx); return each(ctx, repairEvery, repair.Look) })
		g.Go(func() error { return each(ctx, statusEvery, statuses.Look) })
	} else {
		g.Go(func() error { return repair.Run(ctx) })
		g.Go(func() error { return plugin.EverySpread(ctx, statusEvery, statuses.Look) })
	}
	return g.Wait()
}

// each looks after each pause, which is the same for all nodes.
func each(ctx context.Context, pause time.Duration, look func(context.Context)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			look(ctx)
		}
	}
}

// wakes wakes the publisher. It implements [dra.Waker].
type wakes chan struct{}

// Wake implements [dra.Waker].
func (w wakes) Wake() {
	select {
	case w <- struct{}{}:
	default: // it is due already
	}
}

// journalOf is a journal with the records.
type journalOf []*journal.Record

// List implements [journal.Lister].
func (j journalOf) List() ([]*journal.Record, []error) { return j, nil }

// facts decides over the devices of a stand-in's node. It implements [dra.PublishedNode].
type facts struct{ node string }

// PlanNode implements [dra.PublishedNode].
func (f facts) PlanNode(ctx context.Context, snap *device.Snapshot) (plan.Node, error) {
	return plan.Node{Name: f.node, Snapshot: snap, Selection: nodeconfig.Select(nil, snap)}, nil
}

// Failing implements [dra.PublishedNode].
func (facts) Failing(pci.Address) []rule.Failure { return nil }

// Drains implements [dra.PublishedNode].
func (facts) Drains(*device.Snapshot) []maintain.Draining { return nil }

// Lost implements [dra.PublishedNode].
func (facts) Lost() map[string]string { return nil }

// Versions implements [dra.PublishedNode].
func (facts) Versions() publish.Versions { return publish.Versions{} }

// Snapshot is the first rail of a simulated node: a GPU, and a PF with its VFs.
func Snapshot() *device.Snapshot {
	snap := fleet.Node("", vfs, nil).Snapshot
	snap.Functions = slices.DeleteFunc(snap.Functions, func(f device.Function) bool { return f.Root != "pci0000:10" })
	return snap
}

// Record is the journal's record of a claim that a stand-in's node has prepared for its i-th VF.
func Record(node string, i int, namespace, name, uid string) *journal.Record {
	pool, vf := VF(node, i)
	return &journal.Record{
		Kind: journal.Claim, State: journal.Prepared, BootID: "boot", Since: "2026-01-01T00:00:00Z",
		Plan: plan.Plan{
			Claim:   plan.Ref{UID: uid, Namespace: namespace, Name: name, Pods: []claim.Pod{{Name: name, UID: "pod"}}},
			Devices: []plan.Device{{Request: "device", Pool: pool, Name: vf}},
		},
	}
}

// VF returns the pool and the name of a node's i-th VF.
func VF(node string, i int) (pool, name string) {
	return device.NodePool(node) + "/pf-0000-13-00-0", fmt.Sprintf("vf-0000-14-00-%d", i)
}

// noOrphans is a node on which nothing is left over.
type noOrphans struct{}

func (noOrphans) SweepSpecs(context.Context) ([]string, error)               { return nil, nil }
func (noOrphans) GiveBackOrphans(context.Context) ([]maintain.Orphan, error) { return nil, nil }

// allRun is a node on which each process runs.
type allRun struct{}

// IsAlive implements [plugin.Processes].
func (allRun) IsAlive(journal.Process) bool { return true }

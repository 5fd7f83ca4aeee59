package plugin

import (
	"context"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// findServer returns how to reach the API server.
func findServer(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server (outside of a pod, name it with --kubeconfig): %w", err)
	}
	return config, nil
}

// NewClient returns a client for the API server that counts its requests. It changes the config. Its rate limits are
// the kubelet's. With the library's limit of five requests a second, a node that starts a hundred pods would wait for
// itself.
func NewClient(config *rest.Config, m *metrics.Metrics) (kubernetes.Interface, error) {
	return newLimitedClient(config, m, 50, 100)
}

// newReviewClient returns a client for reviews of scrapers' tokens, with its own rate limit, so that scrapers can't
// delay the requests for claims. It shares the connection of [NewClient].
func newReviewClient(kubeconfig string, m *metrics.Metrics) (kubernetes.Interface, error) {
	config, err := findServer(kubeconfig)
	if err != nil {
		return nil, err
	}
	return newLimitedClient(config, m, 5, 10)
}

func newLimitedClient(config *rest.Config, m *metrics.Metrics, qps float32, burst int) (kubernetes.Interface, error) {
	config.QPS, config.Burst = qps, burst
	// ResourceSlices are smaller in protobuf, and the API server stores and caches them in it.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	config.Wrap(m.CountRequests)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the API server: %w", err)
	}
	return client, nil
}

// join connects to the API server and registers with the kubelet.
func (s *service) join(ctx context.Context, health *dra.Health) error {
	config, err := findServer(s.config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := NewClient(config, s.metrics)
	if err != nil {
		return err
	}
	s.client = client
	recorder, err := dra.NewRecorder(ctx, client, s.config.Node.Name)
	if err != nil {
		return err
	}
	attempts := &dra.Attempts{
		Kept: dra.AttemptsKept, Changes: s.changes, Holders: holders{ctx, s},
	}
	s.publisher = dra.NewPublisher(dra.PublisherConfig{
		NodeName: s.config.Node.Name, Node: publishedNode{s}, Records: s.node.Parts.Journal, Health: health, Metrics: s.metrics, Attempts: attempts,
		Cluster: dra.ClusterDevices{Client: client, Node: s.config.Node.Name}, Spread: dra.StartSpread, Changes: s.changes,
	})
	s.outbox = dra.NewOutbox(client, s.config.Node.Name, filepath.Join(filepath.Dir(s.config.Node.JournalDir()), "events.json"), s.log)
	s.reporter = dra.NewReporter(dra.ReporterConfig{
		Client: client, Recorder: recorder, Log: s.log, Final: s.outbox, Ledger: s.node.History, Uplink: s.node.PFs.Uplink,
	})
	s.partitions = &Partitions{Node: s.node, Reporter: s.reporter, Attributes: s.publisher.Attributes, Log: s.log}
	s.stages = &StageWatch{
		Devices: s.node.Maintainer, Client: client, Sanitizers: s.config.Node.Sanitizers, Reporter: s.reporter,
		Node: s.config.Node.Name, Log: s.log, Metrics: s.metrics, Changes: s.changes,
	}
	if err := s.openSandboxes(ctx, client); err != nil {
		return err
	}
	s.plugin = dra.NewPlugin(dra.PluginConfig{
		Client:    client,
		Claims:    s.node.Preparer,
		Twins:     s.twins(client),
		Gate:      &dra.Gate{Client: client, NodeName: s.config.Node.Name, Handlers: s.node.Node.AllowedHandlers},
		Tenants:   s.tenants(client),
		Publisher: s.publisher, Health: health, Reporter: s.reporter, Metrics: s.metrics, Log: s.log,
		Losses: s.losses(), Attempts: attempts, Changes: s.changes, Fatal: s.fatal,
	})
	// Last: the kubelet watches the directory of registration sockets, and calls as soon as one is there.
	s.helper, err = dra.Kubelet{
		Client: client, NodeName: s.config.Node.Name, PodUID: s.config.PodUID,
		PluginDir: s.config.PluginDir, RegistryDir: s.config.RegistryDir, MetadataCDIDir: s.config.MetadataCDIDir,
		GRPCVerbosity: s.config.GRPCVerbosity, Intercept: s.tracer.Unary,
	}.Register(ctx, s.plugin)
	return err
}

// tenants returns what looks up the tenants of claims; nil if the node config has no exclusive domains, since the plugin then may not read
// their IDs.
func (s *service) tenants(client kubernetes.Interface) *dra.Tenants {
	if !s.node.Node.HasExclusive() {
		return nil
	}
	t := &dra.Tenants{ConfigMaps: client.CoreV1().ConfigMaps(s.config.TenantsNamespace)}
	if stages := s.config.Node.Sanitizers; stages != nil {
		t.Stages = stages.Namespace
	}
	return t
}

// twins returns what looks after shared devices; nil if the node config shares none, since the plugin then may not list claims.
func (s *service) twins(client kubernetes.Interface) dra.Exclusion {
	if !s.node.Node.Shares() {
		return nil
	}
	return &dra.Twins{
		Node: s.config.Node.Name, Pods: s.sandboxes.pods, SharedWith: s.sharedWith,
		Claims: client.ResourceV1().ResourceClaims(metav1.NamespaceAll), Slices: client.ResourceV1().ResourceSlices(),
	}
}

// sharedWith returns the DRA driver that the node config shares a function with; empty if there is none.
func (s *service) sharedWith(ctx context.Context, a pci.Address) (string, error) {
	snap, err := s.watcher.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	return nodeconfig.Select(s.node.Node, snap).Choice(a).SharedWith, nil
}

// listenProbes opens the socket of probes.
func (s *service) listenProbes(ctx context.Context, health *dra.Health) error {
	var err error
	s.probes, err = serving.ListenProbes(ctx, s.config.Probes, health.Ready)
	return err
}

// listen opens the ports of metrics and, on request, of profiles.
func (s *service) listen(ctx context.Context) error {
	var err error
	if s.scrapes, err = s.listenMetrics(ctx); err != nil || s.config.Pprof == "" {
		return err
	}
	s.profiles, err = serving.ListenProfiles(ctx, s.config.Pprof)
	return err
}

// listenMetrics opens the port of metrics.
func (s *service) listenMetrics(ctx context.Context) (*serving.Server, error) {
	return s.config.Metrics.Serving.Serve(ctx, s.metrics.Registry, s.config.Node.Name, s.log, func() (kubernetes.Interface, error) {
		return newReviewClient(s.config.Kubeconfig, s.metrics)
	})
}

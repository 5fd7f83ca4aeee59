package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"golang.org/x/sync/errgroup"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// Daemon is a run of the program: a controller with its election, probes and metrics.
type Daemon struct {
	// Cluster is how to reach the API server.
	Cluster *rest.Config
	// Drivers and Sanitizers are those of [Config].
	Drivers    []string
	Sanitizers *v1alpha1.Sanitizers
	// Tenants says that tenants are registered in Namespace, and TenantLabel is the label of [Tenancy].
	Tenants     bool
	TenantLabel string
	// ReserveDomains is [Tenancy.Reserve].
	ReserveDomains bool
	// Classes says that a view of DeviceClasses is published in Namespace.
	Classes bool
	// CountGPUs is that of [Config].
	CountGPUs bool
	Log       *slog.Logger
	// Namespace has the lease, the tenants' IDs and the view of DeviceClasses. Identity is the name of the lease's holder: the
	// name of the pod.
	Namespace, Identity string
	// Probes is the Unix socket of the probes; empty if there is none.
	Probes  string
	Metrics serving.Scraping
}

// Times of the election. Another controller replaces a dead leader after lease, and pods wait that much longer. A leader that
// can't renew its lease stops before another one may begin.
const (
	lease = 15 * time.Second
	renew = 10 * time.Second
	retry = 2 * time.Second
)

// errLeaseLost is the error of [Daemon.Run] if another controller has the lease now: end the process, and start again.
var errLeaseLost = errors.New("the lease is lost")

// Run serves until ctx ends, or until a part ends with an error.
func (d *Daemon) Run(ctx context.Context) error {
	// 50 requests per second, and 100 requests in a burst.
	client, err := d.client(50, 100)
	if err != nil {
		return err
	}
	rules, err := d.taintRules(client.Discovery())
	if err != nil {
		return err
	}
	metrics := NewMetrics()
	recorder, err := newRecorder(ctx, client)
	if err != nil {
		return err
	}
	c, err := New(Config{
		Client: client, Drivers: d.Drivers, Sanitizers: d.Sanitizers, Tenancy: d.tenancy(), ClassesNamespace: d.classes(), TaintRules: rules, CountGPUs: d.CountGPUs,
		Recorder: recorder, Metrics: metrics, Log: d.Log, Now: time.Now,
	})
	if err != nil {
		return err
	}
	metrics.watch(c)
	probes, err := serving.ListenProbes(ctx, d.Probes, c.NotReady)
	if err != nil {
		return err
	}
	if probes != nil {
		defer probes.Close()
	}
	scrapes, err := d.Metrics.Serve(ctx, metrics.Registry, Name, d.Log, func() (kubernetes.Interface, error) { return d.client(5, 10) })
	if err != nil {
		return err
	}
	defer scrapes.Close()
	g, ctx := errgroup.WithContext(ctx)
	if probes != nil {
		g.Go(func() error { return probes.Serve(ctx) })
	}
	g.Go(func() error { return scrapes.Serve(ctx) })
	g.Go(func() error { c.Watch(ctx); return nil })
	g.Go(func() error { return d.elect(ctx, client, c, metrics) })
	return g.Wait()
}

// tenancy returns how tenants are registered; nil if they are not.
func (d *Daemon) tenancy() *Tenancy {
	if !d.Tenants {
		return nil
	}
	return &Tenancy{Namespace: d.Namespace, Label: d.TenantLabel, Reserve: d.ReserveDomains}
}

// classes returns the namespace of the view of DeviceClasses; empty if there is none.
func (d *Daemon) classes() string {
	if !d.Classes {
		return ""
	}
	return d.Namespace
}

// client returns a client with a rate limit of its own. Objects are smaller in protobuf.
func (d *Daemon) client(qps float32, burst int) (kubernetes.Interface, error) {
	config := rest.CopyConfig(d.Cluster)
	config.QPS, config.Burst = qps, burst
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the API server: %w", err)
	}
	return client, nil
}

// taintRules reports whether the API server has DeviceTaintRules. For an API server without them, informers would wait in vain. It asks
// only if something depends on the answer, and refuses to share GPUs without the rules.
func (d *Daemon) taintRules(from discovery.DiscoveryInterface) (bool, error) {
	shares := len(d.Drivers) > 0
	if !shares && !d.Classes && !d.CountGPUs {
		return false, nil
	}
	list, err := from.ServerResourcesForGroupVersion(resourceapi.SchemeGroupVersion.String())
	if err != nil {
		return false, fmt.Errorf("ask the API server for its resources: %w", err)
	}
	has := slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "devicetaintrules" })
	if shares && !has {
		return false, fmt.Errorf("the API server has no DeviceTaintRules in %s: sharing GPUs needs Kubernetes 1.37 or newer", resourceapi.SchemeGroupVersion)
	}
	return has, nil
}

// newRecorder returns a recorder of Events, which works until ctx ends.
func newRecorder(ctx context.Context, client kubernetes.Interface) (events.EventRecorder, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start recording Events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return broadcaster.NewRecorder(scheme.Scheme, Name), nil
}

// elect waits for the lease and leads while it has it. When ctx ends, it releases the lease, so that the next controller does
// not have to wait until the lease expires.
func (d *Daemon) elect(ctx context.Context, client kubernetes.Interface, c *Controller, metrics *Metrics) error {
	lead, stop := context.WithCancel(ctx)
	defer stop()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: Name, Namespace: d.Namespace}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: d.Identity},
		},
		// With ReleaseOnCancel, another controller may lead while Lead still ends here. Each write carries the version of the
		// object that it was decided on, so a late one is refused.
		LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, ReleaseOnCancel: true, Name: Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				metrics.lead(true)
				c.Lead(ctx)
			},
			OnStoppedLeading: func() { metrics.lead(false) },
		},
	})
	if err != nil {
		return fmt.Errorf("take part in the election: %w", err)
	}
	elector.Run(lead)
	if ctx.Err() == nil {
		// Run also returns if the lease was not renewed in time. The process ends, and starts again as a candidate.
		return errLeaseLost
	}
	return nil
}

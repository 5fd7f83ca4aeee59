// Package controller implements kata-vfio-controller, which does what needs a view of the whole cluster. It keeps a GPU that
// kata-vfio and another DRA driver publish from getting two consumers, one in a VM and one in a container. For this it uses
// DeviceTaintRules, and conditions that the scheduler waits for. It also runs sanitizing stages, registers tenants for
// exclusive domains, reserves these domains before pods are bound, and publishes which DeviceClasses tenants have and how many
// GPUs KAI is to count.
//
// Package twin decides about shared GPUs, and package stage about sanitizing stages. This package decides about everything
// else, reads and writes the objects, and elects a leader.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// Name is the controller's name: of its lease, in managed fields and in Events.
const Name = "kata-vfio-controller"

// Config is what a [Controller] works with. All fields but Drivers, Sanitizers, Tenancy, ClassesNamespace, TaintRules and CountGPUs are required.
type Config struct {
	Client kubernetes.Interface
	// Drivers are the DRA drivers that share GPUs with kata-vfio; none if no GPU is shared.
	Drivers []string
	// Sanitizers are the sanitizing stages; nil if there are none.
	Sanitizers *v1alpha1.Sanitizers
	// Tenancy says who is a tenant; nil if no tenants are registered.
	Tenancy *Tenancy
	// ClassesNamespace has the ConfigMap [cluster.ClassesConfigMap]; empty if no view of DeviceClasses is published.
	ClassesNamespace string
	// TaintRules says that the API server has DeviceTaintRules (Kubernetes 1.37). If there are Drivers, it counts as true.
	TaintRules bool
	// CountGPUs makes the controller publish, for each node, the slices of [GPUCountDriver] by which KAI counts GPUs.
	CountGPUs bool

	Recorder events.EventRecorder
	Metrics  *Metrics
	Log      *slog.Logger
	// Now is the clock, in UTC.
	Now func() time.Time
}

// Controller decides about the GPUs of nodes, about stages, tenants, exclusive domains and DeviceClasses. Watch follows the API
// server, and Lead acts. Only one of several controllers should lead. Two that lead disturb each other, but the API server
// refuses a write that was decided on an older state.
type Controller struct {
	config Config
	// queue has the nodes to decide about. Its items are nodes, and not GPUs, because a claim of a device that is not published
	// may be about any GPU of its node.
	queue     workqueue.TypedRateLimitingInterface[string]
	informers informers
	seen      firstSeen
	overlaps  overlaps
	// stages is nil without sanitizers, and tenants is nil without a tenancy. reservations is nil if the tenancy reserves no
	// domains, classes if no view of DeviceClasses is published, and counts if no GPUs are counted.
	stages       *stages
	tenants      *tenants
	reservations *reservations
	classes      *classViews
	counts       *counts
}

// New returns a controller. It sends no request.
func New(c Config) (*Controller, error) {
	ctl := &Controller{
		config: c, seen: firstSeen{of: map[seenKey]twin.Millis{}}, overlaps: overlaps{},
		// The delay of a node's next try begins with 50 ms and doubles with each failure up to 30 s.
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second)),
	}
	if c.Sanitizers != nil {
		if err := stage.Check(c.Sanitizers); err != nil {
			return nil, fmt.Errorf("read the sanitizers: %w", err)
		}
		ctl.stages = newStages(ctl)
	}
	if c.Tenancy != nil {
		ctl.tenants = newTenants(ctl)
		if c.Tenancy.Reserve {
			ctl.reservations = newReservations(ctl)
		}
	}
	if c.ClassesNamespace != "" {
		ctl.classes = newClassViews(ctl)
	}
	if c.CountGPUs {
		ctl.counts = newCounts(ctl)
	}
	if err := ctl.informers.open(ctl); err != nil {
		return nil, fmt.Errorf("make the informers: %w", err)
	}
	return ctl, nil
}

// Watch follows the API server until ctx ends. Call it once.
func (c *Controller) Watch(ctx context.Context) {
	var wg sync.WaitGroup
	for _, i := range c.informers.all() {
		wg.Go(func() { i.RunWithContext(ctx) })
	}
	wg.Wait()
}

// NotReady returns why the controller is not ready, or "" if it is. It is ready once it has read all objects that it decides
// on.
func (c *Controller) NotReady() string {
	for name, i := range c.informers.named() {
		if !i.HasSynced() {
			return "the " + name + " of the API server are not read yet"
		}
	}
	return ""
}

// Lead decides and acts until ctx ends. Call it once, and Watch at the same time.
func (c *Controller) Lead(ctx context.Context) {
	// A loop that waits in Get sees only the shutdown of its queue, not the end of ctx.
	stop := context.AfterFunc(ctx, c.shutDown)
	defer stop()
	defer c.shutDown()
	for _, i := range c.informers.all() {
		// A decision on an incomplete cache would treat missing objects as deleted.
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return
		}
	}
	c.config.Log.InfoContext(ctx, "leads", slog.Any("drivers", c.config.Drivers), slog.Bool("sanitizers", c.stages != nil), slog.Bool("tenants", c.tenants != nil), slog.Bool("reservations", c.reservations != nil), slog.Bool("classes", c.classes != nil), slog.Bool("counts", c.counts != nil))
	var wg sync.WaitGroup
	if c.shares() {
		wg.Go(func() { c.keepTwins(ctx) })
	}
	if c.stages != nil {
		wg.Go(func() { c.stages.run(ctx) })
	}
	if c.tenants != nil {
		wg.Go(func() { c.tenants.run(ctx) })
	}
	if c.reservations != nil {
		wg.Go(func() { c.reservations.run(ctx) })
	}
	if c.classes != nil {
		wg.Go(func() { c.classes.run(ctx) })
	}
	if c.counts != nil {
		c.counts.wakeAll()
		wg.Go(func() { c.counts.run(ctx) })
	}
	wg.Wait()
}

// shares reports whether GPUs are shared with another driver.
func (c *Controller) shares() bool { return len(c.config.Drivers) > 0 }

// shutDown ends the loops of Lead.
func (c *Controller) shutDown() {
	c.queue.ShutDown()
	if c.stages != nil {
		c.stages.queue.ShutDown()
	}
	if c.tenants != nil {
		c.tenants.queue.ShutDown()
	}
	if c.reservations != nil {
		c.reservations.queue.ShutDown()
	}
	if c.counts != nil {
		c.counts.queue.ShutDown()
	}
}

// keepTwins decides about the GPUs of nodes until the queue is shut down.
func (c *Controller) keepTwins(ctx context.Context) {
	c.enqueue(c.informers.cached().whole(c).Nodes()...)
	for {
		nodes, ok := c.due()
		if !ok {
			return
		}
		c.round(ctx, nodes)
		for _, n := range nodes {
			c.queue.Done(n)
		}
	}
}

// due waits for nodes to decide about, and returns all that are due.
func (c *Controller) due() (nodes []string, ok bool) {
	n, down := c.queue.Get()
	if down {
		return nil, false
	}
	nodes = append(nodes, n)
	// There is no other consumer, so Get does not block for what Len counts.
	for c.queue.Len() > 0 {
		if n, down = c.queue.Get(); !down {
			nodes = append(nodes, n)
		}
	}
	return nodes, true
}

func (c *Controller) enqueue(nodes ...string) {
	for _, n := range nodes {
		c.queue.Add(n)
	}
}

// millis returns the time for package twin.
func (c *Controller) millis() twin.Millis { return twin.Millis(c.config.Now().UnixMilli()) }

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// counts keeps, for each node, the ResourceSlices by which KAI counts its GPUs. A kubelet that starts deletes all slices of its
// node, also these, and counts writes them again.
type counts struct {
	controller *Controller
	// queue has the nodes whose slices changed.
	queue workqueue.TypedRateLimitingInterface[string]
}

func newCounts(c *Controller) *counts {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second)
	return &counts{controller: c, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// wake asks for a decision about the node of a slice. A plugin writes the slices of its pools one after the other, so the
// decision waits a moment and covers all of them.
func (n *counts) wake(s *resourceapi.ResourceSlice) {
	if s.Spec.NodeName != nil {
		n.queue.AddAfter(*s.Spec.NodeName, settling)
	}
}

// ruled asks for a decision about the nodes whose devices a DeviceTaintRule may select.
func (n *counts) ruled(r *resourceapi.DeviceTaintRule) {
	for _, pool := range ruledPools(r) {
		if pool == allPools {
			n.wakeAll()
		} else {
			n.queue.AddAfter(cluster.ID{Pool: pool}.Node(), settling)
		}
	}
}

// run writes until the queue is shut down.
func (n *counts) run(ctx context.Context) {
	for {
		node, down := n.queue.Get()
		if down {
			return
		}
		if n.round(ctx, node) {
			n.queue.Forget(node)
		} else {
			n.queue.AddRateLimited(node)
		}
		n.queue.Done(node)
	}
}

// round writes a node's slices for its GPUs. It returns false if that failed and has to be repeated.
func (n *counts) round(ctx context.Context, node string) bool {
	want, known := n.want(node)
	if !known {
		return true // the last slice that the plugin writes calls wake
	}
	limited, cancel := context.WithTimeoutCause(ctx, writeLimit, errors.New("no answer in time"))
	defer cancel()
	err := n.write(limited, n.have(node), want)
	if err == nil {
		return true
	}
	if ctx.Err() == nil && !isConflict(err) {
		n.controller.config.Metrics.countFailures.Inc()
		n.controller.config.Log.WarnContext(ctx, "the count of GPUs is not published: KAI goes by the former one", slog.String("node", node), slog.Any("err", err))
	}
	return false
}

// want returns the slices that a node should have. The result is false while the plugin writes its own slices.
func (n *counts) want(node string) ([]*resourceapi.ResourceSlice, bool) {
	model := &cluster.Cluster{}
	addAll(model, scoped[*resourceapi.ResourceSlice](n.controller.informers.slices[0].GetIndexer(), twin.NodeScope(node)))
	gpus, known := countedGPUs(model, node, n.controller.informers.exclusions(model))
	owner, owned := model.Owner(node)
	if !owned {
		gpus = 0 // nothing is published, or nothing that goes with the node
	}
	return placeholders(node, gpus, owner), known
}

// have returns the slices that a node has, by name.
func (n *counts) have(node string) map[string]*resourceapi.ResourceSlice {
	have := map[string]*resourceapi.ResourceSlice{}
	for _, s := range scoped[*resourceapi.ResourceSlice](n.controller.informers.counts.GetIndexer(), twin.NodeScope(node)) {
		if s.Spec.Driver == GPUCountDriver { // write deletes unwanted slices, and must never delete another driver's
			have[s.Name] = s
		}
	}
	return have
}

// write creates, updates and deletes slices until the node has the wanted ones.
func (n *counts) write(ctx context.Context, have map[string]*resourceapi.ResourceSlice, want []*resourceapi.ResourceSlice) error {
	client := n.controller.config.Client.ResourceV1().ResourceSlices()
	var errs []error
	for _, s := range want {
		present, known := have[s.Name]
		delete(have, s.Name)
		if !known {
			if _, err := client.Create(ctx, s, metav1.CreateOptions{FieldManager: Name}); err != nil {
				errs = append(errs, fmt.Errorf("create ResourceSlice %s: %w", s.Name, err))
			}
			continue
		}
		keepTimes(&s.Spec, &present.Spec)
		if equality.Semantic.DeepEqual(present.Spec, s.Spec) {
			continue
		}
		// The copy has the resource version, so that the API server refuses the update if the slice has changed since.
		changed := present.DeepCopy()
		changed.Spec, changed.OwnerReferences = s.Spec, s.OwnerReferences
		if _, err := client.Update(ctx, changed, metav1.UpdateOptions{FieldManager: Name}); err != nil {
			errs = append(errs, fmt.Errorf("update ResourceSlice %s: %w", s.Name, err))
		}
	}
	for _, s := range have {
		// The cache may be old: a slice that was made again under the name is not this one.
		uid := s.UID
		if err := client.Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
			errs = append(errs, fmt.Errorf("delete ResourceSlice %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// wakeAll asks for a decision about each node that has slices of ours, or a count of an earlier time.
func (n *counts) wakeAll() {
	for _, i := range []cache.SharedIndexInformer{n.controller.informers.slices[0], n.controller.informers.counts} {
		for _, s := range stored[*resourceapi.ResourceSlice](i.GetIndexer()) {
			n.wake(s)
		}
	}
}

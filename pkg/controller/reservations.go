package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
)

// domainsManager is the field manager of the conditions of exclusive domains. It is not the manager of the conditions of shared
// GPUs: each apply of a manager replaces what this manager applied before.
const domainsManager = Name + "-domains"

// reservations answers the claims whose pods wait for exclusive domains. The conditions in their status are all its state.
type reservations struct {
	controller *Controller
	// queue has the nodes with claims to answer.
	queue workqueue.TypedRateLimitingInterface[string]
}

func newReservations(c *Controller) *reservations {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second)
	return &reservations{controller: c, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// wake asks for a decision about the node of a claim that waits.
func (r *reservations) wake(c *cluster.Claim) {
	if answerTo(c) != unanswered {
		return
	}
	for _, d := range waitingDevices(c.Object) {
		r.queue.Add(cluster.ID{Pool: d.Pool}.Node())
	}
}

// run decides and answers until the queue is shut down.
func (r *reservations) run(ctx context.Context) {
	for {
		first, down := r.queue.Get()
		if down {
			return
		}
		nodes := []string{first}
		for r.queue.Len() > 0 { // nodes that are due share a list
			if n, down := r.queue.Get(); !down {
				nodes = append(nodes, n)
			}
		}
		r.round(ctx, nodes)
		for _, n := range nodes {
			r.queue.Done(n)
		}
	}
}

// round answers the claims of nodes.
func (r *reservations) round(ctx context.Context, nodes []string) {
	claims, tenants, err := r.list(ctx)
	if err != nil {
		r.report(ctx, "list", err)
		for _, n := range nodes {
			r.queue.AddRateLimited(n)
		}
		return
	}
	for _, n := range nodes {
		if r.answer(ctx, r.view(n, claims, tenants)) {
			r.queue.Forget(n)
		} else {
			r.queue.AddRateLimited(n)
		}
	}
}

// list lists the claims of all nodes and the tenants' IDs, from no cache: without a resource version the answer is consistent, so that
// it has each reservation that this or another controller has made.
func (r *reservations) list(ctx context.Context) ([]resourceapi.ResourceClaim, map[string]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listLimit, errors.New("no answer in time"))
	defer cancel()
	config := &r.controller.config
	claims, err := config.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list the ResourceClaims: %w", err)
	}
	known, err := config.Client.CoreV1().ConfigMaps(config.Tenancy.Namespace).Get(ctx, v1alpha1.TenantsConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("read ConfigMap %s/%s: %w", config.Tenancy.Namespace, v1alpha1.TenantsConfigMap, err)
	}
	return claims.Items, known.Data, nil
}

// view returns what the decision about a node needs. The slices may come from the cache: another tenant's claim is in the list
// of claims before a slice can show it.
func (r *reservations) view(node string, claims []resourceapi.ResourceClaim, tenants map[string]string) *domainsView {
	v := &domainsView{cluster: &cluster.Cluster{}, node: node, tenants: tenants}
	if s := r.controller.config.Sanitizers; s != nil {
		v.stages = s.Namespace
	}
	addAll(v.cluster, scoped[*resourceapi.ResourceSlice](r.controller.informers.slices[0].GetIndexer(), twin.NodeScope(node)))
	for i := range claims {
		if hasDeviceOn(&claims[i], node) {
			v.cluster.Add(&claims[i])
		}
	}
	return v
}

// hasDeviceOn reports whether kata-vfio's devices of a node are allocated to a claim. It does not decode the claim, because
// most claims are of other nodes.
func hasDeviceOn(o *resourceapi.ResourceClaim, node string) bool {
	return o.Status.Allocation != nil && slices.ContainsFunc(o.Status.Allocation.Devices.Results, func(d resourceapi.DeviceRequestAllocationResult) bool {
		return d.Driver == v1alpha1.DriverName && cluster.ID{Pool: d.Pool}.Node() == node
	})
}

// answer writes the answers to the claims of a node. It reports whether all were written and no claim waits for its tenant. An answer that
// can't be written delays no other claim: the API server may refuse each answer to a claim (see [kube.WriteClaimStatus]), and a tenant can
// change a claim all the time. The other answers stay right, because they were decided as if all of them were written.
func (r *reservations) answer(ctx context.Context, v *domainsView) bool {
	answers, written := v.reserve(), true
	for i := range answers {
		if ctx.Err() != nil {
			return false
		}
		if err := r.write(ctx, &answers[i]); err != nil {
			r.report(ctx, "set condition", err)
			written = false
			continue
		}
		r.done(ctx, &answers[i])
	}
	if !written {
		return false
	}
	// Nothing wakes the node when a namespace is registered, so it is looked at again, with growing pauses: each look lists all claims.
	return !slices.ContainsFunc(v.contenders(), func(c contender) bool { return answerTo(c.claim) == unanswered && !v1alpha1.IsTenantID(c.tenant) })
}

// write sets a condition of all devices of a claim that wait. The write carries the claim's UID and resource version, so that the API server
// refuses it if the claim has another allocation.
func (r *reservations) write(ctx context.Context, a *reservation) error {
	ctx, cancel := context.WithTimeoutCause(ctx, writeLimit, errors.New("no answer in time"))
	defer cancel()
	o := a.claim.Object
	// The time is never before the allocation, whatever the clocks of the two machines say: an older condition counts as that
	// of a former allocation.
	at := metav1.NewTime(r.controller.config.Now())
	if at.Before(allocatedAt(o)) {
		at = *allocatedAt(o)
	}
	status := resourceac.ResourceClaimStatus()
	is := metav1.ConditionFalse
	if a.isTrue {
		is = metav1.ConditionTrue
	}
	for _, d := range waitingDevices(o) {
		entry := resourceac.AllocatedDeviceStatus().WithDriver(d.Driver).WithPool(d.Pool).WithDevice(d.Device)
		if d.ShareID != nil {
			entry.WithShareID(string(*d.ShareID))
		}
		status.WithDevices(entry.WithConditions(condition(a.kind, is, a.reason, a.message, at)))
	}
	ac := resourceac.ResourceClaim(o.Name, o.Namespace).WithUID(o.UID).WithResourceVersion(o.ResourceVersion).WithStatus(status)
	claims := r.controller.config.Client.ResourceV1().ResourceClaims(o.Namespace)
	if err := kube.WriteClaimStatus(ctx, claims, domainsManager, ac, r.controller.whole(o.Namespace, o.Name)); err != nil {
		return fmt.Errorf("set %s of claim %s/%s: %w", a.kind, o.Namespace, o.Name, err)
	}
	return nil
}

// done logs, counts and records an answer.
func (r *reservations) done(ctx context.Context, a *reservation) {
	config := &r.controller.config
	config.Metrics.domainAnswers.WithLabelValues(string(a.reason)).Inc()
	config.Log.LogAttrs(ctx, slog.LevelInfo, "action done", slog.String("action", "set condition"), slog.String("claim", a.claim.Name()),
		slog.String("type", a.kind), slog.Bool("status", a.isTrue), slog.String("reason", string(a.reason)))
	kind := corev1.EventTypeWarning
	if a.isTrue && a.kind == v1alpha1.ConditionDomainReserved {
		kind = corev1.EventTypeNormal
	}
	config.Recorder.Eventf(a.claim.Object, nil, kind, string(a.reason), "Answer", "%s", a.message)
}

// report logs and counts an action that failed.
func (r *reservations) report(ctx context.Context, action string, err error) {
	config := &r.controller.config
	about := []any{slog.String("action", action), slog.Any("err", err)}
	switch {
	case ctx.Err() != nil:
	case isConflict(err):
		config.Metrics.domainConflicts.WithLabelValues(action).Inc()
		config.Log.DebugContext(ctx, "object changed: decide again", about...)
	default:
		config.Metrics.domainFailures.WithLabelValues(action).Inc()
		config.Log.WarnContext(ctx, "action failed: pods wait for their exclusive domains until it works", about...)
	}
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Tenancy is how the controller registers tenants.
type Tenancy struct {
	// Namespace has the ConfigMap [v1alpha1.TenantsConfigMap].
	Namespace string
	// Label is the label of Namespaces whose value makes them one tenant. A namespace without a value is a tenant by itself, as
	// is each namespace if Label is empty.
	Label string
	// Reserve says that exclusive domains are reserved for claims before their pods are bound (reserveDomains of node configs).
	Reserve bool
}

// tenants keeps the ConfigMap with the IDs of tenants. It has no other state, so that a crash before or after a write only
// costs time.
type tenants struct {
	controller *Controller
	tenancy    tenancy
	queue      workqueue.TypedRateLimitingInterface[string]
	// What the last decision found, for metrics.
	registered, left, replaced atomic.Int64
}

// allTenants is the one item of the queue.
const allTenants = "tenants"

// recheck is how often the ConfigMap is read if no namespace changes. Only people change it besides the controller, and
// watching it would need one more right.
const recheck = 30 * time.Second

func newTenants(c *Controller) *tenants {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second)
	return &tenants{
		controller: c, tenancy: tenancy{label: c.config.Tenancy.Label, newID: randomID},
		queue: workqueue.NewTypedRateLimitingQueue(limiter),
	}
}

// wake asks for a decision. Namespaces that are created together share a write.
func (t *tenants) wake() { t.queue.AddAfter(allTenants, settling) }

// run decides and writes until the queue is shut down.
func (t *tenants) run(ctx context.Context) {
	t.wake()
	for {
		item, down := t.queue.Get()
		if down {
			return
		}
		if t.round(ctx) {
			t.queue.Forget(item)
			// Nothing watches the ConfigMap, so an entry that was changed by hand is found at the next look only.
			t.queue.AddAfter(item, recheck)
		} else {
			t.queue.AddRateLimited(item)
		}
		t.queue.Done(item)
	}
}

// round makes the ConfigMap match the namespaces, and reports whether it does.
func (t *tenants) round(ctx context.Context) bool {
	limited, cancel := context.WithTimeoutCause(ctx, listLimit, errors.New("no answer in time"))
	defer cancel()
	decision, action, err := t.try(limited)
	t.report(ctx, action, err)
	if err == nil && decision != nil {
		t.registered.Store(int64(decision.registered()))
		t.left.Store(int64(len(decision.left)))
		t.replaced.Add(int64(len(decision.replaced)))
		t.log(ctx, decision)
	}
	return err == nil && decision != nil
}

// try reads, decides and writes. It returns its last action. The decision is nil if try has to be called again, because it
// could not read, or only created the ConfigMap.
//
// The namespaces of a write are listed from the API server after the ConfigMap was read. With a cache that is behind, a former
// leader would give a namespace that was recreated meanwhile its former ID. The API server refuses the write if another write
// came between.
func (t *tenants) try(ctx context.Context) (d *tenantsDecision, action string, err error) {
	present, err := t.client().Get(ctx, v1alpha1.TenantsConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "create", t.create(ctx)
	}
	if err != nil {
		return nil, "get", fmt.Errorf("read ConfigMap %s/%s: %w", t.namespace(), v1alpha1.TenantsConfigMap, err)
	}
	if d = t.tenancy.decide(t.cached(), present.Data); d.isDone(present.Data) {
		return d, "get", nil
	}
	now, err := t.list(ctx)
	if err != nil {
		return nil, "list", err
	}
	if d = t.tenancy.decide(now, present.Data); d.isDone(present.Data) {
		return d, "list", nil
	}
	return d, "update", t.update(ctx, present, d.data)
}

func (t *tenants) namespace() string { return t.controller.config.Tenancy.Namespace }

func (t *tenants) client() clientcorev1.ConfigMapInterface {
	return t.controller.config.Client.CoreV1().ConfigMaps(t.namespace())
}

// create creates the ConfigMap without entries, so that all of them are written by update.
func (t *tenants) create(ctx context.Context) error {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.namespace(), Name: v1alpha1.TenantsConfigMap, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
	}}
	if _, err := t.client().Create(ctx, c, metav1.CreateOptions{FieldManager: Name}); err != nil {
		return fmt.Errorf("create ConfigMap %s/%s: %w", t.namespace(), v1alpha1.TenantsConfigMap, err)
	}
	return nil
}

// update replaces all entries, if the ConfigMap is as it was read. The empty entry drops the managed fields, which name each key once
// more and count for etcd's limit: "Clearing managedFields" of the documentation of Server-Side Apply.
func (t *tenants) update(ctx context.Context, present *corev1.ConfigMap, data map[string]string) error {
	c := present.DeepCopy()
	c.Data, c.BinaryData, c.ManagedFields = data, nil, []metav1.ManagedFieldsEntry{{}}
	if _, err := t.client().Update(ctx, c, metav1.UpdateOptions{FieldManager: Name}); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", t.namespace(), v1alpha1.TenantsConfigMap, err)
	}
	return nil
}

// cached returns the namespaces of the informer.
func (t *tenants) cached() []tenantNamespace {
	var all []tenantNamespace
	for _, n := range stored[*corev1.Namespace](t.controller.informers.namespaces.GetIndexer()) {
		all = append(all, t.decode(n))
	}
	return all
}

// list lists the namespaces: without a resource version the answer is consistent.
func (t *tenants) list(ctx context.Context) ([]tenantNamespace, error) {
	list, err := t.controller.config.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the Namespaces: %w", err)
	}
	all := make([]tenantNamespace, len(list.Items))
	for i := range list.Items {
		all[i] = t.decode(&list.Items[i])
	}
	return all, nil
}

func (t *tenants) decode(n *corev1.Namespace) tenantNamespace {
	decoded := tenantNamespace{name: n.Name, uid: string(n.UID)}
	if t.tenancy.label != "" {
		decoded.value = n.Labels[t.tenancy.label]
	}
	return decoded
}

// slimNamespace drops what the controller does not read of a Namespace.
func slimNamespace(object any) (any, error) {
	if n, ok := object.(*corev1.Namespace); ok {
		n.ManagedFields, n.Annotations = nil, nil
	}
	return object, nil
}

// report logs and counts what became of an action.
func (t *tenants) report(ctx context.Context, action string, err error) {
	metrics, log := t.controller.config.Metrics, t.controller.config.Log
	about := []any{slog.String("action", action+" tenants"), slog.Any("err", err)}
	switch {
	case err == nil && (action == "create" || action == "update"):
		log.InfoContext(ctx, "action done", about[0])
	case err == nil, ctx.Err() != nil:
	case isConflict(err):
		metrics.tenantConflicts.WithLabelValues(action).Inc()
		log.DebugContext(ctx, "object changed: decide again", about...)
	default:
		metrics.tenantFailures.WithLabelValues(action).Inc()
		log.WarnContext(ctx, "action failed: new namespaces are not registered until it works", about...)
	}
}

// log logs what an operator must know of a decision that is in force.
func (t *tenants) log(ctx context.Context, d *tenantsDecision) {
	for _, who := range d.replaced {
		t.controller.config.Log.WarnContext(ctx, "entry of a tenant was changed by hand: the tenant has a new ID", slog.String("tenant", who))
	}
	if len(d.left) > 0 {
		t.controller.config.Log.ErrorContext(ctx, "no room for more namespaces: a ConfigMap has 1 MiB; their claims are refused",
			slog.Int("namespaces", len(d.left)), slog.String("first", d.left[0]), slog.Int("registered", d.registered()))
	}
}

// tenantCollector collects the results of the last decision. Only the replica that leads decides.
type tenantCollector struct {
	tenants                    *tenants
	registered, left, replaced *prometheus.Desc
}

func newTenantCollector(t *tenants) *tenantCollector {
	return &tenantCollector{
		tenants:    t,
		registered: prometheus.NewDesc("kata_vfio_tenants_registered", "Namespaces that have a tenant ID.", nil, nil),
		left:       prometheus.NewDesc("kata_vfio_tenants_without_room", "Namespaces without a tenant ID because the ConfigMap is full. Their claims are refused.", nil, nil),
		replaced:   prometheus.NewDesc("kata_vfio_tenants_replaced_total", "Tenant IDs that were replaced because an entry was changed by hand.", nil, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *tenantCollector) Describe(into chan<- *prometheus.Desc) {
	into <- c.registered
	into <- c.left
	into <- c.replaced
}

// Collect implements [prometheus.Collector].
func (c *tenantCollector) Collect(into chan<- prometheus.Metric) {
	into <- prometheus.MustNewConstMetric(c.registered, prometheus.GaugeValue, float64(c.tenants.registered.Load()))
	into <- prometheus.MustNewConstMetric(c.left, prometheus.GaugeValue, float64(c.tenants.left.Load()))
	into <- prometheus.MustNewConstMetric(c.replaced, prometheus.CounterValue, float64(c.tenants.replaced.Load()))
}

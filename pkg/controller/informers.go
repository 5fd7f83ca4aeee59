package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// listLimit is the time limit of one consistent list of all that the controller decides on, and writeLimit that of one write.
// The one goroutine that decides waits for both. Without a limit, an API server that accepts connections and never answers
// would stop it forever, while the lease is still renewed.
const (
	listLimit  = 30 * time.Second
	writeLimit = 10 * time.Second
)

// informers cache what the controller decides on.
type informers struct {
	slices     []cache.SharedIndexInformer // one for each driver; the first is kata-vfio's. Empty if claims is nil and no GPUs are counted
	claims     cache.SharedIndexInformer   // nil if nothing needs claims: no shared GPUs, no sanitizers, no reservations, no view of classes
	counts     cache.SharedIndexInformer   // slices of GPUCountDriver; nil if no GPUs are counted
	rules      cache.SharedIndexInformer   // the controller's own DeviceTaintRules; nil if no GPU is shared
	ruledOut   cache.SharedIndexInformer   // all DeviceTaintRules; nil if nothing counts devices, or the API server has none
	pods       cache.SharedIndexInformer   // pods of stages; nil without sanitizers
	namespaces cache.SharedIndexInformer   // nil if there is neither a tenancy nor a view of classes
	classes    cache.SharedIndexInformer   // nil without a view of classes
}

// ruleLabels selects the controller's rules.
func ruleLabels() string {
	return labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}.String()
}

// sliceFields selects the slices of a driver.
func sliceFields(driver string) string {
	return fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, driver).String()
}

// stageLabels selects the pods and claims of stages.
func stageLabels() string {
	return labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}.String()
}

// open makes the informers, which wake the controller.
func (i *informers) open(c *Controller) error {
	i.openClasses(c)
	return errors.Join(i.openDevices(c), i.openRules(c), i.openRuledOut(c), i.openPods(c), i.openNamespaces(c), i.openCounts(c))
}

// openDevices makes the informers of slices and claims.
func (i *informers) openDevices(c *Controller) error {
	readsClaims := c.shares() || c.stages != nil || c.reservations != nil || c.classes != nil
	if !readsClaims && c.counts == nil {
		return nil
	}
	client := c.config.Client
	// One informer for each driver, because a field selector can't name several values.
	for _, driver := range append([]string{v1alpha1.DriverName}, c.config.Drivers...) {
		one := resourceinformers.NewFilteredResourceSliceInformer(client, 0, c.config.indexers(), func(o *metav1.ListOptions) { o.FieldSelector = sliceFields(driver) })
		if _, err := one.AddEventHandler(handler(c.sliceChanged)); err != nil {
			return err
		}
		i.slices = append(i.slices, one)
	}
	if !readsClaims {
		return nil
	}
	i.claims = resourceinformers.NewResourceClaimInformer(client, metav1.NamespaceAll, 0, c.config.indexers())
	if err := i.claims.SetTransform(slim); err != nil {
		return err
	}
	_, err := i.claims.AddEventHandler(handler(c.claimChanged))
	return err
}

// openRules makes the informer of the controller's own DeviceTaintRules, which an API server before 1.37 does not have.
func (i *informers) openRules(c *Controller) error {
	if !c.shares() {
		return nil
	}
	i.rules = resourceinformers.NewFilteredDeviceTaintRuleInformer(c.config.Client, 0, c.config.indexers(), func(o *metav1.ListOptions) { o.LabelSelector = ruleLabels() })
	rules := handler(c.ruleChanged)
	rules.DeleteFunc = handler(c.ruleGone).DeleteFunc
	_, err := i.rules.AddEventHandler(rules)
	return err
}

// openPods makes the informer of the pods of stages.
func (i *informers) openPods(c *Controller) error {
	if c.stages == nil {
		return nil
	}
	i.pods = coreinformers.NewFilteredPodInformer(c.config.Client, c.config.Sanitizers.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = stageLabels() })
	_, err := i.pods.AddEventHandler(handler(func(*corev1.Pod) { c.stages.wake() }))
	return err
}

// openNamespaces makes the informer of namespaces.
func (i *informers) openNamespaces(c *Controller) error {
	if c.tenants == nil && c.classes == nil {
		return nil
	}
	i.namespaces = coreinformers.NewNamespaceInformer(c.config.Client, 0, cache.Indexers{})
	if err := i.namespaces.SetTransform(slimNamespace); err != nil {
		return err
	}
	if c.tenants == nil {
		return nil
	}
	_, err := i.namespaces.AddEventHandler(handler(func(*corev1.Namespace) { c.tenants.wake() }))
	return err
}

// openClasses makes the informer of DeviceClasses.
func (i *informers) openClasses(c *Controller) {
	if c.classes != nil {
		i.classes = resourceinformers.NewDeviceClassInformer(c.config.Client, 0, cache.Indexers{})
	}
}

// openCounts makes the informer of the slices by which GPUs are counted.
func (i *informers) openCounts(c *Controller) error {
	if c.counts == nil {
		return nil
	}
	i.counts = resourceinformers.NewFilteredResourceSliceInformer(c.config.Client, 0, c.config.indexers(), func(o *metav1.ListOptions) { o.FieldSelector = sliceFields(GPUCountDriver) })
	_, err := i.counts.AddEventHandler(handler(c.counts.wake))
	return err
}

// slim drops the fields of a claim that the controller does not read. The cache keeps all claims in memory, and most of them
// are of other drivers.
func slim(object any) (any, error) {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok {
		return object, nil
	}
	// The informer has not stored the object yet, so nobody else reads it (cache.TransformFunc).
	claim.ManagedFields, claim.Spec = nil, resourceapi.ResourceClaimSpec{}
	if a := claim.Status.Allocation; a != nil {
		a.Devices.Config = nil
	}
	for i := range claim.Status.Devices {
		claim.Status.Devices[i].Data, claim.Status.Devices[i].NetworkData = nil, nil
	}
	return claim, nil
}

// handler calls changed with the old and the new state of each object that changes.
func handler[T any](changed func(T)) cache.ResourceEventHandlerFuncs {
	of := func(object any) {
		// The watch missed the deletion, and a later list showed it. The object is the last known state.
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if o, ok := object.(T); ok {
			changed(o)
		}
	}
	// Both states of an update: a claim that lost its devices concerns the node on which it had them.
	return cache.ResourceEventHandlerFuncs{AddFunc: of, UpdateFunc: func(before, after any) { of(before); of(after) }, DeleteFunc: of}
}

func (c *Controller) sliceChanged(s *resourceapi.ResourceSlice) {
	if c.stages != nil && slices.Contains(stage.SliceScopes(s), stage.WaitingScope) {
		c.stages.wake()
	}
	if c.counts != nil {
		c.counts.wake(s)
	}
	if c.shares() && s.Spec.NodeName != nil {
		c.enqueue(*s.Spec.NodeName)
	}
}

func (c *Controller) ruleChanged(r *resourceapi.DeviceTaintRule) {
	// The rule's time counts from this event on, and not from the next decision.
	c.since(r)
	nodes := twin.RuleNodes(r)
	if len(nodes) == 0 {
		nodes = c.informers.cached().whole(c).Nodes() // the rule's annotations are not as the controller writes them
	}
	c.enqueue(nodes...)
}

func (c *Controller) ruleGone(r *resourceapi.DeviceTaintRule) {
	c.ruleChanged(r)
	c.forget(r)
}

func (c *Controller) claimChanged(claim *resourceapi.ResourceClaim) {
	decoded := cluster.DecodeClaim(claim)
	if c.stages != nil && len(stage.ClaimScopes(decoded, c.config.Sanitizers)) > 0 {
		c.stages.wake()
	}
	if c.reservations != nil {
		c.reservations.wake(decoded)
	}
	if !c.shares() {
		return
	}
	nodes, all := twin.ClaimNodes(decoded, c.config.Drivers)
	if all {
		nodes = c.informers.cached().whole(c).Nodes()
	}
	c.enqueue(nodes...)
}

// named returns the informers by the resource.
func (i *informers) named() map[string]cache.SharedIndexInformer {
	named := map[string]cache.SharedIndexInformer{
		"ResourceClaims": i.claims, "DeviceTaintRules": i.rules, "DeviceTaintRules (all)": i.ruledOut,
		"Pods": i.pods, "Namespaces": i.namespaces, "DeviceClasses": i.classes, "counts": i.counts,
	}
	maps.DeleteFunc(named, func(_ string, one cache.SharedIndexInformer) bool { return one == nil })
	for n, s := range i.slices {
		named[fmt.Sprintf("ResourceSlices (%d)", n)] = s
	}
	return named
}

func (i *informers) all() []cache.SharedIndexInformer {
	return slices.Collect(maps.Values(i.named()))
}

// cached returns what the informers have about shared GPUs.
func (i *informers) cached() *store {
	s := &store{claims: i.claims.GetIndexer(), rules: i.rules.GetIndexer()}
	for _, one := range i.slices {
		s.slices = append(s.slices, one.GetIndexer())
	}
	return s
}

// fresh lists the objects from the API server instead of a cache. A list without a resource version is consistent.
// [twin.GPU.Fresh] requires this order of the lists. fresh ends after listLimit at the latest.
func (c *Controller) fresh(ctx context.Context) (*store, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listLimit, errors.New("no answer in time"))
	defer cancel()
	client, s := c.config.Client.ResourceV1(), &store{}
	rules, err := client.DeviceTaintRules().List(ctx, metav1.ListOptions{LabelSelector: ruleLabels()})
	if err == nil {
		s.rules, err = listed(&c.config, rules)
	}
	if err != nil {
		return nil, fmt.Errorf("list the DeviceTaintRules: %w", err)
	}
	for _, driver := range append([]string{v1alpha1.DriverName}, c.config.Drivers...) {
		var one cache.Indexer
		list, err := client.ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: sliceFields(driver)})
		if err == nil {
			one, err = listed(&c.config, list)
		}
		if err != nil {
			return nil, fmt.Errorf("list the ResourceSlices of %s: %w", driver, err)
		}
		s.slices = append(s.slices, one)
	}
	claims, err := client.ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err == nil {
		s.claims, err = listed(&c.config, claims)
	}
	if err != nil {
		return nil, fmt.Errorf("list the ResourceClaims: %w", err)
	}
	return s, nil
}

package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// ClaimLister lists the ResourceClaims of all namespaces. The claims of client-go implement it.
type ClaimLister interface {
	List(context.Context, metav1.ListOptions) (*resourceapi.ResourceClaimList, error)
}

// SliceLister lists ResourceSlices. The slices of client-go implement it.
type SliceLister interface {
	List(context.Context, metav1.ListOptions) (*resourceapi.ResourceSliceList, error)
}

// PodLister lists which devices the node's pods have. A client of the kubelet's pod-resources API implements it.
type PodLister interface {
	List(context.Context, *podresourcesv1.ListPodResourcesRequest, ...grpc.CallOption) (*podresourcesv1.ListPodResourcesResponse, error)
}

// Twins keeps a GPU from a VM while a container has it by another DRA driver. The controller and the scheduler prevent that both get the
// GPU, but Twins doesn't rely on them: a pod can skip the scheduler, a condition outlives a reboot, and the scheduler's view may be old. If
// it is unknown whether another driver's claim has the GPU, the claim is refused.
type Twins struct {
	// Node is the node's name.
	Node   string
	Claims ClaimLister
	Slices SliceLister
	Pods   PodLister
	// SharedWith returns the DRA driver that the node config shares a function with; empty if there is none.
	SharedWith func(context.Context, pci.Address) (string, error)
}

// podsLimit bounds how long the kubelet may take. It answers from memory.
const podsLimit = 5 * time.Second

// sharedDevice is a device of a claim that another driver publishes too.
type sharedDevice struct {
	device *claim.Device
	driver string
}

// Reserved returns nil if the controller has reserved the claim's shared devices for it, and a [rule.RefusedError] otherwise.
func (t *Twins) Reserved(ctx context.Context, c *resourceapi.ResourceClaim, req *claim.Request) error {
	shared, err := t.shared(ctx, req)
	if err != nil {
		return err
	}
	for _, d := range shared {
		if !isReserved(c, d.device.Pool, d.device.Name) {
			return refuse(req, rule.TwinNotReserved,
				fmt.Sprintf("device %s is shared with driver %s, and kata-vfio-controller has not reserved it for the claim", d.device.Name, d.driver),
				"check that kata-vfio-controller runs (chart: sharedPool.enabled), and that the pod has no spec.nodeName, which skips the scheduler; then delete the pod and create it again")
		}
	}
	return nil
}

// isReserved reports whether a claim's status says that one of its devices is reserved for it. A condition from a former allocation does
// not count.
func isReserved(c *resourceapi.ResourceClaim, pool, name string) bool {
	if c.Status.Allocation == nil {
		return false
	}
	since := c.Status.Allocation.AllocationTimestamp
	return slices.ContainsFunc(listConditions(c, pool, name), func(is metav1.Condition) bool {
		// Both times are in whole seconds (metav1.Time), so a condition from the second of the allocation counts.
		return is.Type == v1alpha1.ConditionTwinReserved && is.Status == metav1.ConditionTrue &&
			(since == nil || !is.LastTransitionTime.Before(since))
	})
}

// Free returns nil if no claim and no pod has a twin of the claim's shared devices now, a [rule.RefusedError] if one has, and another error
// if that is unknown. It asks the API server until ctx ends. Call it before devices are bound, and again before their VM starts.
//
// It reads the slices before the claims, so that a device that is published in between counts as unknown. It reads each of them once,
// however many devices the claim has, because the list of all claims is large.
func (t *Twins) Free(ctx context.Context, req *claim.Request) error {
	shared, err := t.shared(ctx, req)
	if err != nil || len(shared) == 0 {
		return err
	}
	published, err := t.publishedBy(ctx, shared)
	if err != nil {
		return fmt.Errorf("claim %s/%s: %w", req.Namespace, req.Name, err)
	}
	claims, err := t.claims(ctx)
	if err != nil {
		return fmt.Errorf("claim %s/%s: look for claims with %s: %w", req.Namespace, req.Name, nameGPUs(shared), err)
	}
	for _, d := range shared {
		if taken := t.claimed(claims, d.driver, twinMatcher(d, published)); taken != nil {
			return inUse(req, d, fmt.Sprintf("device %s of pool %s is allocated to a claim", taken.Name, taken.Pool))
		}
	}
	pods, err := t.pods(ctx)
	if err != nil {
		return fmt.Errorf("claim %s/%s: ask the kubelet which pods have %s (its pod-resources API must answer): %w", req.Namespace, req.Name, nameGPUs(shared), err)
	}
	monitors := monitored(claims)
	for _, d := range shared {
		if taken := used(pods, d.driver, twinMatcher(d, published), monitors); taken != nil {
			return inUse(req, d, fmt.Sprintf("a pod on this node has device %s of pool %s", taken.Name, taken.Pool))
		}
	}
	return nil
}

// nameGPUs names the devices for an error.
func nameGPUs(shared []sharedDevice) string {
	names := make([]string, len(shared))
	for i, d := range shared {
		names[i] = "GPU " + d.device.Address.String()
	}
	return strings.Join(names, ", ")
}

// shared returns the devices of a claim that come from this node's pool of shared devices. It leaves out devices that the node config does
// not share any more: the plan refuses them, unless they are prepared.
func (t *Twins) shared(ctx context.Context, req *claim.Request) ([]sharedDevice, error) {
	var all []sharedDevice
	for i := range req.Devices {
		d := &req.Devices[i]
		if node, ok := device.NodeOfSharedPool(d.Pool); !ok || node != t.Node {
			continue
		}
		driver, err := t.SharedWith(ctx, d.Address)
		if err != nil {
			return nil, fmt.Errorf("claim %s/%s: look at GPU %s: %w", req.Namespace, req.Name, d.Address, err)
		}
		if driver != "" {
			all = append(all, sharedDevice{d, driver})
		}
	}
	return all, nil
}

// publication is what a driver publishes on this node: its devices, each with the PCI addresses that its slices name. While a pool is
// rewritten, a device may have two addresses.
type publication map[publish.Allocated][]string

// publishedBy returns what the other drivers of the shared devices publish, by driver.
func (t *Twins) publishedBy(ctx context.Context, shared []sharedDevice) (map[string]publication, error) {
	all := map[string]publication{}
	for _, d := range shared {
		if all[d.driver] != nil {
			continue
		}
		var err error
		if all[d.driver], err = t.published(ctx, d.driver); err != nil {
			return nil, fmt.Errorf("look for the devices of driver %s: %w", d.driver, err)
		}
	}
	return all, nil
}

// twinMatcher returns a function that reports whether a device of the other driver is, or may be, the shared device.
func twinMatcher(d sharedDevice, published map[string]publication) func(publish.Allocated) bool {
	return func(name publish.Allocated) bool {
		// A device that is in no slice now may be this GPU, because its pool may be in the middle of an update.
		addresses, known := published[d.driver][name]
		return !known || slices.Contains(addresses, d.device.Address.String())
	}
}

// inUse refuses a claim. The refusal does not name the claim that has the GPU, which may belong to another tenant.
func inUse(req *claim.Request, d sharedDevice, what string) error {
	return refuse(req, rule.TwinInUse, fmt.Sprintf("GPU %s is shared with driver %s, and %s", d.device.Address, d.driver, what),
		"delete the pod and create it again, so that the scheduler allocates another GPU, or waits for this one")
}

// published returns what a driver publishes on this node.
func (t *Twins) published(ctx context.Context, driver string) (publication, error) {
	selector := fields.Set{resourceapi.ResourceSliceSelectorDriver: driver, resourceapi.ResourceSliceSelectorNodeName: t.Node}
	var list *resourceapi.ResourceSliceList
	err := insist(ctx, func(ctx context.Context) (err error) {
		list, err = t.Slices.List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
		return err
	})
	if err != nil {
		return nil, err
	}
	known := publication{}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		for j := range spec.Devices {
			name := publish.Allocated{Pool: spec.Pool.Name, Name: spec.Devices[j].Name}
			known[name] = append(known[name], findAddress(&spec.Devices[j]))
		}
	}
	return known, nil
}

// findAddress returns the PCI address of a device; empty for one that is no PCI function.
func findAddress(d *resourceapi.Device) string {
	if bus, ok := d.Attributes[deviceattribute.StandardDeviceAttributePCIBusID]; ok && bus.StringValue != nil {
		return *bus.StringValue
	}
	return ""
}

// claims returns the allocated claims. The list is consistent: it has each allocation that the API server has accepted before.
func (t *Twins) claims(ctx context.Context) ([]resourceapi.ResourceClaim, error) {
	var list *resourceapi.ResourceClaimList
	err := insist(ctx, func(ctx context.Context) (err error) {
		list, err = t.Claims.List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(c resourceapi.ResourceClaim) bool { return c.Status.Allocation == nil }), nil
}

// claimed returns a twin that is allocated to any claim, including the claim in question; nil if there is none. A claim with adminAccess
// does not count: a monitoring claim has all GPUs, and would keep them all from VMs.
func (t *Twins) claimed(claims []resourceapi.ResourceClaim, driver string, isTwin func(publish.Allocated) bool) *publish.Allocated {
	for i := range claims {
		c := &claims[i]
		if !t.canBeHere(c.Status.Allocation.NodeSelector) {
			continue
		}
		for j := range c.Status.Allocation.Devices.Results {
			r := &c.Status.Allocation.Devices.Results[j]
			if name := (publish.Allocated{Pool: r.Pool, Name: r.Device}); r.Driver == driver && isTwin(name) && !isMonitor(r) {
				return &name
			}
		}
	}
	return nil
}

func isMonitor(r *resourceapi.DeviceRequestAllocationResult) bool {
	return r.AdminAccess != nil && *r.AdminAccess
}

// monitor is a device that a claim has with adminAccess. The kubelet names the claim and the device, but not whether the claim has
// adminAccess.
type monitor struct {
	namespace, claim, driver string
	device                   publish.Allocated
}

// monitored returns for each device of a claim whether the claim has it with adminAccess only.
func monitored(claims []resourceapi.ResourceClaim) map[monitor]bool {
	all := map[monitor]bool{}
	for i := range claims {
		c := &claims[i]
		for j := range c.Status.Allocation.Devices.Results {
			r := &c.Status.Allocation.Devices.Results[j]
			m := monitor{c.Namespace, c.Name, r.Driver, publish.Allocated{Pool: r.Pool, Name: r.Device}}
			known, before := all[m]
			all[m] = isMonitor(r) && (known || !before)
		}
	}
	return all
}

// canBeHere reports whether the devices of an allocation may be on this node. It considers only the node's name in the selector, because
// labels can change.
func (t *Twins) canBeHere(s *corev1.NodeSelector) bool {
	if s == nil {
		return true
	}
	byName := &corev1.NodeSelector{}
	for _, term := range s.NodeSelectorTerms {
		// A term without matchFields selects by labels only, and may match any node.
		if len(term.MatchFields) == 0 {
			return true
		}
		byName.NodeSelectorTerms = append(byName.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchFields: term.MatchFields})
	}
	selector, err := nodeaffinity.NewNodeSelector(byName)
	return err != nil || selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.Node}})
}

// pods returns the claims of all pods on this node, as the kubelet knows them.
func (t *Twins) pods(ctx context.Context) ([]*podresourcesv1.DynamicResource, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, podsLimit, errors.New("no answer in time"))
	defer cancel()
	answer, err := t.Pods.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	return dynamicResources(answer), nil
}

// used returns a twin that a pod on this node has, other than by adminAccess; nil if there is none. It finds containers whose claim was
// deallocated by force. If a monitor's process has the device open, Prepare refuses to bind it, and names the process.
func used(pods []*podresourcesv1.DynamicResource, driver string, isTwin func(publish.Allocated) bool, monitors map[monitor]bool) *publish.Allocated {
	for _, d := range pods {
		for _, r := range d.GetClaimResources() {
			name := publish.Allocated{Pool: r.GetPoolName(), Name: r.GetDeviceName()}
			as := monitor{d.GetClaimNamespace(), d.GetClaimName(), r.GetDriverName(), name}
			if r.GetDriverName() == driver && isTwin(name) && !monitors[as] {
				return &name
			}
		}
	}
	return nil
}

// dynamicResources returns the claims of all pods.
func dynamicResources(answer *podresourcesv1.ListPodResourcesResponse) []*podresourcesv1.DynamicResource {
	var all []*podresourcesv1.DynamicResource
	for _, pod := range answer.GetPodResources() {
		for _, container := range pod.GetContainers() {
			all = append(all, container.GetDynamicResources()...)
		}
	}
	return all
}

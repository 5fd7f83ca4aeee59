package controller

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// apiServer refuses what the API server refuses: writes of an older resource version or another UID, names that exist,
// conditions of devices that the claim does not have, and of other drivers. It sets the times of taints that are written without one.
type apiServer struct {
	t       *testing.T
	mu      sync.Mutex // guards all below, and each request
	tracker clienttesting.ObjectTracker
	version int
	refused []string // what was refused
	deleted map[string][]runtime.Object
}

func newAPIServer(t *testing.T) *apiServer {
	return &apiServer{t: t, deleted: map[string][]runtime.Object{}, tracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())}
}

// client returns a client. before, if any, sees each write before the API server gets it; an error of it is the answer.
func (s *apiServer) client(before func(clienttesting.Action) error) *fake.Clientset {
	c := &fake.Clientset{}
	c.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if before != nil {
			if err := before(a); err != nil {
				return true, nil, err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		o, err := s.answer(a)
		if err != nil {
			s.refused = append(s.refused, fmt.Sprintf("%s %s: %v", a.GetVerb(), a.GetResource().Resource, err))
		}
		return true, o, err
	})
	c.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := s.watch(a)
		return true, w, err
	})
	return c
}

// watch watches a resource. Nothing is lost between a list and the watch after it: all that there is, and was, comes first.
func (s *apiServer) watch(a clienttesting.Action) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := a.GetResource()
	changes, err := s.tracker.Watch(in, "")
	if err != nil {
		return nil, err
	}
	var first []watch.Event
	for _, o := range s.deleted[in.Resource] {
		first = append(first, watch.Event{Type: watch.Deleted, Object: o})
	}
	list, err := s.tracker.List(in, in.GroupVersion().WithKind(kinds()[in.Resource]), "")
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			first = append(first, watch.Event{Type: watch.Modified, Object: o.DeepCopyObject()})
			return nil
		})
	}
	all, stop := make(chan watch.Event), make(chan struct{})
	w := watch.NewProxyWatcher(all)
	go func() { <-w.StopChan(); close(stop); changes.Stop() }()
	go pump(first, changes.ResultChan(), all, stop)
	return w, err
}

func kinds() map[string]string {
	return map[string]string{"resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim", "devicetaintrules": "DeviceTaintRule", "pods": "Pod", "namespaces": "Namespace"}
}

// pump passes events on until it is stopped.
func pump(first []watch.Event, rest <-chan watch.Event, to chan<- watch.Event, stop <-chan struct{}) {
	send := func(e watch.Event) bool {
		select {
		case to <- e:
			return true
		case <-stop:
			return false
		}
	}
	for _, e := range first {
		if !send(e) {
			return
		}
	}
	for e := range rest {
		if !send(e) {
			return
		}
	}
}

func (s *apiServer) answer(a clienttesting.Action) (runtime.Object, error) {
	switch a.GetVerb() {
	case "list":
		return s.list(a.(clienttesting.ListActionImpl))
	case "get":
		return s.tracker.Get(a.GetResource(), a.GetNamespace(), a.(clienttesting.GetAction).GetName())
	case "create":
		return s.create(a.GetResource(), a.(clienttesting.CreateAction).GetObject())
	case "update":
		return s.update(a.GetResource(), a.(clienttesting.UpdateAction).GetObject())
	case "patch":
		return s.patch(a.(clienttesting.PatchAction))
	case "delete":
		gone, _ := s.tracker.Get(a.GetResource(), a.GetNamespace(), a.(clienttesting.DeleteActionImpl).GetName())
		err := s.delete(a.(clienttesting.DeleteActionImpl))
		if err == nil {
			s.deleted[a.GetResource().Resource] = append(s.deleted[a.GetResource().Resource], gone.DeepCopyObject())
		}
		return nil, err
	}
	return nil, fmt.Errorf("the double has no %s of %s", a.GetVerb(), a.GetResource())
}

// list lists a resource, of slices those of the node that the request selects.
func (s *apiServer) list(a clienttesting.ListActionImpl) (runtime.Object, error) {
	o, err := s.tracker.List(a.GetResource(), a.Kind, a.GetNamespace())
	if all, ok := o.(*resourceapi.ResourceSliceList); ok {
		if node, selected := a.ListRestrictions.Fields.RequiresExactMatch(resourceapi.ResourceSliceSelectorNodeName); selected {
			all.Items = slices.DeleteFunc(all.Items, func(s resourceapi.ResourceSlice) bool {
				return *s.Spec.NodeName != node || s.Spec.Driver != v1alpha1.DriverName
			})
		}
	}
	return o, err
}

// isChanged reports whether more was written than the slices of [shared].
func (s *apiServer) isChanged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version > 2
}

// next is a new resource version.
func (s *apiServer) next() string {
	s.version++
	return fmt.Sprint(s.version)
}

func (s *apiServer) create(in schema.GroupVersionResource, o runtime.Object) (runtime.Object, error) {
	o = o.DeepCopyObject()
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	version := s.next()
	m.SetUID(types.UID("uid-" + version))
	m.SetResourceVersion(version)
	m.SetGeneration(1)
	m.SetCreationTimestamp(metav1.Now())
	setTimes(o)
	return o, s.tracker.Create(in, o, m.GetNamespace())
}

// update writes an object, if it is as the writer read it.
func (s *apiServer) update(in schema.GroupVersionResource, o runtime.Object) (runtime.Object, error) {
	o = o.DeepCopyObject()
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	old, err := s.tracker.Get(in, m.GetNamespace(), m.GetName())
	if err != nil {
		return nil, err
	}
	if err := s.check(in, old, m.GetUID(), m.GetResourceVersion()); err != nil {
		return nil, err
	}
	if claim, ok := o.(*resourceapi.ResourceClaim); ok && claim.Status.Allocation == nil {
		claim.Status.Devices = nil
	}
	m.SetResourceVersion(s.next())
	setTimes(o)
	return o, s.tracker.Update(in, o, m.GetNamespace())
}

// setTimes sets the times of taints that have none, as the API server's defaults do.
func setTimes(o runtime.Object) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	switch o := o.(type) {
	case *resourceapi.DeviceTaintRule:
		if o.Spec.Taint.TimeAdded == nil {
			o.Spec.Taint.TimeAdded = &now
		}
	case *resourceapi.ResourceSlice:
		for i := range o.Spec.Devices {
			for k := range o.Spec.Devices[i].Taints {
				if t := &o.Spec.Devices[i].Taints[k]; t.TimeAdded == nil {
					t.TimeAdded = &now
				}
			}
		}
	}
}

// check refuses a write for another object or version; empty values are for any.
func (s *apiServer) check(in schema.GroupVersionResource, o runtime.Object, uid types.UID, version string) error {
	m, err := meta.Accessor(o)
	if err == nil && (uid != "" && uid != m.GetUID() || version != "" && version != m.GetResourceVersion()) {
		err = apierrors.NewConflict(in.GroupResource(), m.GetName(), fmt.Errorf("it is %s at %s, not %s at %s", m.GetUID(), m.GetResourceVersion(), uid, version))
	}
	return err
}

func (s *apiServer) delete(a clienttesting.DeleteActionImpl) error {
	o, err := s.tracker.Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return err
	}
	p := a.DeleteOptions.Preconditions
	if _, ok := o.(*resourceapi.ResourceSlice); ok { // the plugin's and the kubelet's own
		return s.tracker.Delete(a.GetResource(), a.GetNamespace(), a.GetName())
	}
	if p == nil || p.UID == nil || p.ResourceVersion == nil {
		s.t.Errorf("%s is deleted without preconditions", a.GetName())
		return nil
	}
	if err := s.check(a.GetResource(), o, *p.UID, *p.ResourceVersion); err != nil {
		return err
	}
	return s.tracker.Delete(a.GetResource(), a.GetNamespace(), a.GetName())
}

func (s *apiServer) patch(a clienttesting.PatchAction) (runtime.Object, error) {
	o, err := s.tracker.Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return nil, err
	}
	var m struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(a.GetPatch(), &m); err != nil {
		return nil, err
	}
	if m.Metadata.UID == "" || m.Metadata.ResourceVersion == "" {
		s.t.Errorf("the patch of %s is for any version: %s", a.GetName(), a.GetPatch())
	}
	if err := s.check(a.GetResource(), o, m.Metadata.UID, m.Metadata.ResourceVersion); err != nil {
		return nil, err
	}
	o = o.DeepCopyObject()
	switch o := o.(type) {
	case *resourceapi.ResourceClaim:
		if a.GetPatchType() == types.MergePatchType && a.GetSubresource() == "status" {
			o.Status.Devices = nil // a list is replaced
			err = json.Unmarshal(a.GetPatch(), o)
		} else {
			err = applied(o, a)
		}
		o.ResourceVersion = s.next()
	case *resourceapi.DeviceTaintRule:
		before := o.Spec.DeepCopy()
		err = json.Unmarshal(a.GetPatch(), o) // merges maps and objects, as the patches here want
		if o.ResourceVersion = s.next(); !reflect.DeepEqual(before, &o.Spec) {
			o.Generation++
		}
	default:
		err = fmt.Errorf("the double patches no %T", o)
	}
	if err != nil {
		return nil, err
	}
	return o, s.tracker.Update(a.GetResource(), o, a.GetNamespace())
}

// applied applies conditions to a claim's status. What the same field manager applied before, and does not any more, goes.
func applied(claim *resourceapi.ResourceClaim, a clienttesting.PatchAction) error {
	if a.GetPatchType() != types.ApplyPatchType || a.GetSubresource() != "status" {
		return fmt.Errorf("claims are patched by %s of %q, not by applying their status", a.GetPatchType(), a.GetSubresource())
	}
	var want resourceapi.ResourceClaim
	if err := json.Unmarshal(a.GetPatch(), &want); err != nil {
		return err
	}
	own := []string{v1alpha1.ConditionTwinReserved, v1alpha1.ConditionTwinInUse}
	if a.(clienttesting.PatchActionImpl).PatchOptions.FieldManager == domainsManager {
		own = []string{v1alpha1.ConditionDomainReserved, v1alpha1.ConditionDomainTaken}
	}
	for i := range claim.Status.Devices {
		claim.Status.Devices[i].Conditions = slices.DeleteFunc(claim.Status.Devices[i].Conditions, func(c metav1.Condition) bool {
			return slices.Contains(own, c.Type)
		})
	}
	for _, d := range want.Status.Devices {
		if claim.Status.Allocation == nil || !slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == d.Driver && r.Pool == d.Pool && r.Device == d.Device
		}) {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "ResourceClaim"}, claim.Name, nil)
		}
		if d.Driver != v1alpha1.DriverName {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), claim.Name, fmt.Errorf("no right to devices of %s", d.Driver))
		}
		i := slices.IndexFunc(claim.Status.Devices, func(o resourceapi.AllocatedDeviceStatus) bool {
			return o.Driver == d.Driver && o.Pool == d.Pool && o.Device == d.Device
		})
		if i < 0 {
			i, claim.Status.Devices = len(claim.Status.Devices), append(claim.Status.Devices, resourceapi.AllocatedDeviceStatus{Driver: d.Driver, Pool: d.Pool, Device: d.Device})
		}
		claim.Status.Devices[i].Conditions = append(claim.Status.Devices[i].Conditions, d.Conditions...)
	}
	return nil
}

func resource(name string) schema.GroupVersionResource {
	if slices.Contains([]string{"pods", "namespaces", "configmaps"}, name) {
		return corev1.SchemeGroupVersion.WithResource(name)
	}
	return resourceapi.SchemeGroupVersion.WithResource(name)
}

// put creates an object or overwrites it, as its owner does.
func (s *apiServer) put(in string, o runtime.Object) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := meta.Accessor(o)
	if err != nil {
		s.t.Fatal(err)
	}
	if old, getting := s.tracker.Get(resource(in), m.GetNamespace(), m.GetName()); getting == nil {
		before, _ := meta.Accessor(old)
		m.SetUID(before.GetUID())
		m.SetResourceVersion("")
		_, err = s.update(resource(in), o)
	} else {
		_, err = s.create(resource(in), o)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// onNode is the scheduler's selector of a node.
func onNode(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}
}

const (
	otherDriver = "gpu.example.com"
	nodeA       = "node-a"
	oursName    = "gpu-0000-3b-00-0"
	pciA        = "node-a/0000:3b:00.0"
)

// oursOn publishes our device of node-a on a kernel driver, with taints.
func (s *apiServer) oursOn(kernelDriver string, taints ...string) {
	d := deviceAt(oursName, "0000:3b:00.0")
	d.Attributes["sharedWith"], d.Attributes["driver"] = stringAttribute(otherDriver), stringAttribute(kernelDriver)
	for _, key := range taints {
		d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: key, Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	s.put("resourceslices", sliceOf("ours", v1alpha1.DriverName, nodeA+"/kata-vfio.dev/shared", d))
}

// twins publishes devices of the other driver for the same GPU.
func (s *apiServer) twins(names ...string) {
	var devices []resourceapi.Device
	for _, n := range names {
		devices = append(devices, deviceAt(n, "0000:3b:00.0"))
	}
	s.put("resourceslices", sliceOf("theirs", otherDriver, nodeA, devices...))
}

func stringAttribute(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: &s}
}

func deviceAt(name, address string) resourceapi.Device {
	return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"resource.kubernetes.io/pciBusID": stringAttribute(address),
	}}
}

func sliceOf(name, driver, pool string, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	node := nodeA
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1}, Devices: devices},
	}
}

// allocate allocates a device to a claim, as the scheduler does, or nothing.
func (s *apiServer) allocate(claim, driver, pool, device string) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: claim}}
	if device != "" {
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		c.Status.Allocation = &resourceapi.AllocationResult{
			AllocationTimestamp: &now, NodeSelector: onNode(nodeA),
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: driver, Pool: pool, Device: device}}},
		}
	}
	s.put("resourceclaims", c)
}

func (s *apiServer) allocateOurs(claim string) {
	s.allocate(claim, v1alpha1.DriverName, nodeA+"/kata-vfio.dev/shared", oursName)
}

func (s *apiServer) allocateTwin(claim, device string) { s.allocate(claim, otherDriver, nodeA, device) }

func (s *apiServer) deallocate(claim string) { s.allocate(claim, "", "", "") }

// rules are the devices with rules and the sides that have the GPU.
func (s *apiServer) rules() map[string]string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.tracker.List(resource("devicetaintrules"), resourceapi.SchemeGroupVersion.WithKind("DeviceTaintRule"), "")
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range o.(*resourceapi.DeviceTaintRuleList).Items {
		all[*r.Spec.DeviceSelector.Device] = r.Spec.Taint.Value
	}
	return all
}

// answer is the last answer to a claim: "TwinReserved=True", or "".
func (s *apiServer) answerTo(claim string) string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.tracker.Get(resource("resourceclaims"), "team-a", claim)
	if err != nil {
		s.t.Fatal(err)
	}
	answer := ""
	for _, d := range o.(*resourceapi.ResourceClaim).Status.Devices {
		for _, c := range d.Conditions {
			answer = c.Type[len(v1alpha1.DriverName)+1:] + "=" + string(c.Status)
		}
	}
	return answer
}

// leaseHolder is who has the lease.
func (s *apiServer) leaseHolder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.tracker.Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), "kata-vfio-system", Name)
	if err != nil || o.(*coordinationv1.Lease).Spec.HolderIdentity == nil {
		return ""
	}
	return *o.(*coordinationv1.Lease).Spec.HolderIdentity
}

// damage changes the taint of a device's rule, as an administrator may.
func (s *apiServer) damage(target string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.tracker.List(resource("devicetaintrules"), resourceapi.SchemeGroupVersion.WithKind("DeviceTaintRule"), "")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range o.(*resourceapi.DeviceTaintRuleList).Items {
		if *r.Spec.DeviceSelector.Device == target {
			r.Spec.Taint.Value, r.Generation = "changed", r.Generation+1
			if _, err := s.update(resource("devicetaintrules"), &r); err != nil {
				s.t.Error(err)
			}
		}
	}
}

package fleet

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// keep returns an object with the fields that a bundle has, and hides the tenants that it names; nil if it is not in the bundle. It
// remembers DeviceClasses, because they show which waiting claims are for kata-vfio.
func (d *Dump) keep(o runtime.Object) runtime.Object {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
		// The annotation is the whole object as `kubectl apply` got it, with the values of variables that the bundle leaves out.
		delete(m.GetAnnotations(), "kubectl.kubernetes.io/last-applied-configuration")
	}
	switch o := o.(type) {
	case *corev1.Pod:
		return d.keepPod(o)
	case *corev1.Event:
		return d.keepEvent(o)
	case *corev1.ConfigMap:
		d.keepConfigMap(o)
	case *appsv1.DaemonSet:
		hideEnvironment(&o.Spec.Template.Spec)
	case *appsv1.Deployment:
		hideEnvironment(&o.Spec.Template.Spec)
	case *corev1.Node:
		return d.keepNode(o)
	case *resourceapi.DeviceClass:
		d.known.Add(o)
		d.hideGrants(o)
	case *resourceapi.ResourceSlice:
		if o.Spec.Driver != v1alpha1.DriverName {
			return nil
		}
	case *resourceapi.ResourceClaim:
		if !d.known.IsOurs(cluster.DecodeClaim(o)) {
			return nil
		}
		d.keepClaim(o)
	case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
		if m, err := meta.Accessor(o); err != nil || m.GetLabels()[nameLabel] != "kata-vfio" {
			return nil
		}
	}
	return o
}

// hideGrants hides the namespaces to which a DeviceClass is granted.
func (d *Dump) hideGrants(c *resourceapi.DeviceClass) {
	for name := range strings.FieldsFuncSeq(c.Annotations[v1alpha1.AnnotationNamespaces], func(r rune) bool { return r == ',' || r == ' ' }) {
		if name != "*" {
			d.Mask.Hide(name)
		}
	}
}

// keepConfigMap removes the IDs of tenants from a masked bundle, because their keys are names of namespaces.
func (d *Dump) keepConfigMap(c *corev1.ConfigMap) {
	if d.Mask != nil && c.Name == v1alpha1.TenantsConfigMap {
		c.Data, c.BinaryData = nil, nil
	}
}

// keepClaim hides a claim's names. A masked bundle leaves out its labels and annotations, which are the tenant's own words, its
// parameters and its addresses.
func (d *Dump) keepClaim(c *resourceapi.ResourceClaim) {
	d.claims[c.Namespace+"/"+c.Name] = true
	for i := range c.Status.ReservedFor {
		d.pods[c.Namespace+"/"+c.Status.ReservedFor[i].Name] = true
	}
	if d.Mask == nil {
		return
	}
	d.Mask.Hide(c.Namespace, c.Name)
	for i := range c.Status.ReservedFor {
		d.Mask.Hide(c.Status.ReservedFor[i].Name)
	}
	for i := range c.OwnerReferences {
		d.Mask.Hide(c.OwnerReferences[i].Name)
	}
	maskDevices(c)
	c.Labels, c.Annotations, c.GenerateName = nil, nil, ""
}

// maskDevices removes the addresses of a claim's devices, and the parameters that the claim sets, which have addresses, too. Those of
// the DeviceClass stay, and so does what the plugin says of its devices.
func maskDevices(c *resourceapi.ResourceClaim) {
	for i := range c.Spec.Devices.Config {
		leaveOutParameters(&c.Spec.Devices.Config[i].DeviceConfiguration)
	}
	if a := c.Status.Allocation; a != nil {
		for i := range a.Devices.Config {
			if a.Devices.Config[i].Source != resourceapi.AllocationConfigSourceClass {
				leaveOutParameters(&a.Devices.Config[i].DeviceConfiguration)
			}
		}
	}
	for i := range c.Status.Devices {
		s := &c.Status.Devices[i]
		s.NetworkData = nil
		if s.Driver != v1alpha1.DriverName {
			s.Data = nil
		}
	}
}

func leaveOutParameters(c *resourceapi.DeviceConfiguration) {
	if c.Opaque != nil {
		c.Opaque.Parameters = runtime.RawExtension{Raw: []byte(`{"leftOut":true}`)}
	}
}

// keepPod returns a pod of kata-vfio without the values of environment variables, and only those fields of a pod with a claim on
// which its state depends.
func (d *Dump) keepPod(p *corev1.Pod) runtime.Object {
	if p.Namespace == d.Namespace {
		hideEnvironment(&p.Spec)
		if IsComponent(p) {
			d.Components = append(d.Components, p)
		}
		return p
	}
	if !d.hasClaim(p) {
		return nil
	}
	d.pods[p.Namespace+"/"+p.Name] = true
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
			DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds, Finalizers: p.Finalizers, OwnerReferences: p.OwnerReferences,
		},
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, RuntimeClassName: p.Spec.RuntimeClassName, SchedulerName: p.Spec.SchedulerName, Overhead: p.Spec.Overhead,
			ResourceClaims: p.Spec.ResourceClaims, InitContainers: keptContainers(p.Spec.InitContainers), Containers: keptContainers(p.Spec.Containers),
		},
		Status: p.Status,
	}
	if d.Mask != nil {
		d.maskPod(kept)
	}
	return kept
}

// hasClaim reports whether a pod has, or asks for, one of kata-vfio's claims.
func (d *Dump) hasClaim(p *corev1.Pod) bool {
	named := func(name *string) bool { return name != nil && d.claims[p.Namespace+"/"+*name] }
	return d.pods[p.Namespace+"/"+p.Name] ||
		slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return named(c.ResourceClaimName) }) ||
		slices.ContainsFunc(p.Status.ResourceClaimStatuses, func(c corev1.PodResourceClaimStatus) bool { return named(c.ResourceClaimName) })
}

func keptContainers(all []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range all {
		kept = append(kept, corev1.Container{Name: all[i].Name, Image: all[i].Image, Resources: all[i].Resources})
	}
	return kept
}

// maskPod hides a pod's names, images and addresses.
func (d *Dump) maskPod(p *corev1.Pod) {
	d.Mask.Hide(p.Namespace, p.Name)
	for i := range p.OwnerReferences {
		d.Mask.Hide(p.OwnerReferences[i].Name)
	}
	d.maskClaims(p)
	d.words.add(p.Status.PodIP)
	for _, ip := range p.Status.PodIPs {
		d.words.add(ip.IP)
	}
	p.Status.HostIP, p.Status.HostIPs, p.Status.PodIP, p.Status.PodIPs, p.Status.VolumeHealth = "", nil, "", nil, nil
	d.words.cut(&p.Status.Message)
	for i := range p.Status.Conditions {
		d.words.cut(&p.Status.Conditions[i].Message)
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			d.words.add(containers[i].Image)
			d.Mask.Hide(containers[i].Name)
			containers[i].Image = leftOut
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			d.maskStatus(&statuses[i])
		}
	}
}

// maskClaims hides what a pod calls its claims and templates, and the names of its claims for other drivers' devices.
func (d *Dump) maskClaims(p *corev1.Pod) {
	for i := range p.Spec.ResourceClaims {
		c := &p.Spec.ResourceClaims[i]
		d.Mask.Hide(c.Name, deref(c.ResourceClaimName), deref(c.ResourceClaimTemplateName))
	}
	for i := range p.Status.ResourceClaimStatuses {
		d.Mask.Hide(deref(p.Status.ResourceClaimStatuses[i].ResourceClaimName))
	}
	for i := range p.Status.NodeAllocatableResourceClaimStatuses {
		d.Mask.Hide(p.Status.NodeAllocatableResourceClaimStatuses[i].ResourceClaimName)
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil {
		d.Mask.Hide(extended.ResourceClaimName)
	}
}

// maskStatus hides a container's name and image, and the texts that the container itself wrote.
func (d *Dump) maskStatus(s *corev1.ContainerStatus) {
	d.Mask.Hide(s.Name)
	d.words.add(s.Image, s.ImageID)
	s.Image, s.ImageID, s.VolumeMounts = leftOut, "", nil
	if w := s.State.Waiting; w != nil {
		d.words.cut(&w.Message)
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil {
			// The message is the end of the termination log (terminationMessagePath), or of the container's output: a tenant's text.
			t.Message = ""
		}
	}
}

// keepEvent returns an event about an object of the bundle; nil for others.
func (d *Dump) keepEvent(e *corev1.Event) runtime.Object {
	about := e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
	switch {
	case e.Namespace == d.Namespace, e.InvolvedObject.Kind == "Node":
	case e.InvolvedObject.Kind == "Pod" && d.pods[about], e.InvolvedObject.Kind == "ResourceClaim" && d.claims[about]:
		if d.Mask != nil {
			e.Labels, e.Annotations = nil, nil
			d.words.cut(&e.Message)
		}
	default:
		return nil
	}
	return e
}

// keepNode returns the fields of a node that show its devices and its state. With a mask, it removes the node's addresses.
func (d *Dump) keepNode(n *corev1.Node) runtime.Object {
	kept := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp, Labels: n.Labels},
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
		Status: corev1.NodeStatus{
			Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable, Conditions: n.Status.Conditions, NodeInfo: n.Status.NodeInfo,
			Addresses: n.Status.Addresses, RuntimeHandlers: n.Status.RuntimeHandlers, Features: n.Status.Features,
		},
	}
	if d.Mask != nil {
		kept.Status.Addresses = nil
	}
	return kept
}

// hideEnvironment removes the values of environment variables: the name of a variable does not show whether it holds a credential.
func hideEnvironment(spec *corev1.PodSpec) {
	hide := func(env []corev1.EnvVar) {
		for i := range env {
			if env[i].Value != "" {
				env[i].Value = leftOut
			}
		}
	}
	for i := range spec.InitContainers {
		hide(spec.InitContainers[i].Env)
	}
	for i := range spec.Containers {
		hide(spec.Containers[i].Env)
	}
	for i := range spec.EphemeralContainers {
		hide(spec.EphemeralContainers[i].Env)
	}
}

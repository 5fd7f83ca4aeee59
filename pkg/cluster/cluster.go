// Package cluster is the model of what the API server knows about devices and their users: ResourceSlices, ResourceClaims, pods,
// DeviceClasses, RuntimeClasses, and admission policies with their bindings. The audit of a cluster, the evidence for conformance, the
// kubectl plugin and the controller are functions of this model.
//
// [Cluster.Add] decodes each object once. Relations between objects, such as the claim that has a device, are looked up in indexes by node,
// place, claim or pod, so that a function of the whole cluster takes one pass. The package is pure: the caller lists the objects. Names and
// texts are kept as they were listed, and may come from anyone.
package cluster

import (
	"slices"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster has the objects that were added. The zero value is empty. It keeps pointers to the objects, except to ResourceSlices, which are
// large: don't change an object after it was added. Look-ups don't change the model, so several goroutines may make them.
type Cluster struct {
	devices  []*Device
	byNode   map[string][]*Device
	byPlace  map[Place][]*Device
	byID     map[ID]*Device
	pools    map[poolKey]*Pool
	owners   map[string]metav1.OwnerReference
	health   map[string]*NodeHealth
	claims   []*Claim
	byName   map[objectKey]*Claim
	holders  map[ID]*Claim
	statuses map[string][]*Status
	pods     []*Pod
	podNames map[objectKey]*Pod
	users    map[objectKey][]*Pod
	classes  map[string]class
	runtimes map[string]*nodev1.RuntimeClass
	policies map[string]*Policy
	// passes counts the calls that return all claims, devices, pods or pools. A function of the cluster must make as many such calls for 10
	// nodes as for 1,000; a test checks this.
	passes atomic.Int64
}

// objectKey names an object of a namespace.
type objectKey struct{ namespace, name string }

// Add adds an object, and reports whether the model has objects of its kind. A DeviceClass and the claims that name it may be added in any
// order.
func (c *Cluster) Add(object any) bool {
	switch o := object.(type) {
	case *resourceapi.ResourceSlice:
		c.addSlice(o)
	case *resourceapi.ResourceClaim:
		c.addClaim(DecodeClaim(o))
	case *corev1.Pod:
		c.addPod(o)
	case *resourceapi.DeviceClass:
		put(&c.classes, o.Name, class{o, isOurs(o)})
	case *nodev1.RuntimeClass:
		put(&c.runtimes, o.Name, o)
	case *admissionv1.ValidatingAdmissionPolicy:
		c.policy(o.Name).Object = o
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		p := c.policy(o.Spec.PolicyName)
		p.Bindings = append(p.Bindings, o)
	default:
		return false
	}
	return true
}

// put sets a key of a map, which it makes if there is none.
func put[K comparable, V any](to *map[K]V, key K, value V) {
	if *to == nil {
		*to = map[K]V{}
	}
	(*to)[key] = value
}

// appendTo appends to the values of a key of a map, which it makes if there is none.
func appendTo[K comparable, V any](to *map[K][]V, key K, value V) {
	put(to, key, append((*to)[key], value))
}

// deref returns the value that p points to, and the zero value for nil.
func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// Handler returns the handler of a RuntimeClass, and false if there is no such class.
func (c *Cluster) Handler(runtimeClass string) (string, bool) {
	r, ok := c.runtimes[runtimeClass]
	if !ok {
		return "", false
	}
	return r.Handler, true
}

// RuntimeClasses returns the RuntimeClasses, by name.
func (c *Cluster) RuntimeClasses() []*nodev1.RuntimeClass { return inOrder(c.runtimes) }

// inOrder returns the values of a map in the order of their keys.
func inOrder[V any](of map[string]V) []V {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	all := make([]V, len(names))
	for i, name := range names {
		all[i] = of[name]
	}
	return all
}

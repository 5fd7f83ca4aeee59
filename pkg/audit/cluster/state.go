package cluster

import (
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
)

// State is what the API server says, as far as the checks look at it.
type State struct {
	// Version is the API server's, "v1.36.2".
	Version string
	Options Options

	Namespaces     []corev1.Namespace
	Nodes          map[string]bool
	Pods           []corev1.Pod // with claims, or in a tenant's namespace
	RuntimeClasses []nodev1.RuntimeClass
	DaemonSets     []appsv1.DaemonSet
	Quotas         []corev1.ResourceQuota
	DeviceClasses  []resourceapi.DeviceClass
	Claims         []resourceapi.ResourceClaim
	Devices        []Device
	Policies       []admissionv1.ValidatingAdmissionPolicy
	Bindings       []admissionv1.ValidatingAdmissionPolicyBinding
	Roles          []rbacv1.ClusterRole // those of namespaces have their Namespace set
	Grants         []Grant
	Probes         []Probe
	// Written is when the plugin last wrote a claim's status, by the claim's UID.
	Written map[types.UID]time.Time
	// Reports are nodes' own audits, several of a node included, and Now is the time
	// against which their age is held. [Read] leaves both to the caller.
	Reports []*finding.Report
	Now     time.Time
	// Missing says of a kind of object why it could not be listed.
	Missing map[string]string
}

// Options say what is ours in the cluster.
type Options struct {
	// TenantLabel marks tenants' namespaces by being there.
	TenantLabel string
	// Namespace is the plugin's.
	Namespace string
	// RuntimeClasses are those whose pods may have devices.
	RuntimeClasses []string
	// ProbeNamespace is where dry runs are made; empty for none.
	ProbeNamespace string
}

// Device is one device of a ResourceSlice.
type Device struct {
	Driver, Node, Pool, Slice, Name string
	Generation                      int64
	// Address is what the device says of its PCI address; empty for none.
	Address string
	Taints  []resourceapi.DeviceTaint
}

// Grant is one subject of a binding.
type Grant struct {
	Subject rbacv1.Subject
	// Role and its kind, the binding, and the namespace that it is good for; empty
	// for all.
	Role, RoleKind, Binding, Namespace string
}

// IsTenant reports whether a namespace is a tenant's: it has the label.
func (s *State) IsTenant(namespace string) bool {
	return slices.ContainsFunc(s.Namespaces, func(n corev1.Namespace) bool {
		_, ok := n.Labels[s.Options.TenantLabel]
		return n.Name == namespace && ok
	})
}

// holds reports whether a claim is allocated with a device of ours.
func holds(c *resourceapi.ResourceClaim) bool {
	return c.Status.Allocation != nil && slices.ContainsFunc(c.Status.Allocation.Devices.Results,
		func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver == v1alpha1.DriverName })
}

// isOurs reports whether a DeviceClass asks for our driver: it has our domain or
// annotation, or its parameters or selectors name the driver. The chart's policy
// tenant-classes goes by the same.
func isOurs(c *resourceapi.DeviceClass) bool {
	_, annotated := c.Annotations[v1alpha1.AnnotationNamespaces]
	if annotated || strings.HasSuffix(c.Name, "."+v1alpha1.DriverName) {
		return true
	}
	if slices.ContainsFunc(c.Spec.Config, func(config resourceapi.DeviceClassConfiguration) bool {
		return config.Opaque != nil && config.Opaque.Driver == v1alpha1.DriverName
	}) {
		return true
	}
	return slices.ContainsFunc(c.Spec.Selectors, func(sel resourceapi.DeviceSelector) bool {
		return sel.CEL != nil && strings.Contains(sel.CEL.Expression, v1alpha1.DriverName)
	})
}

// claimsOf returns a pod's claims that hold a device of ours.
func (s *State) claimsOf(p *corev1.Pod) []*resourceapi.ResourceClaim {
	names := claim.NamesOfPod(p)
	var claims []*resourceapi.ResourceClaim
	for i := range s.Claims {
		if c := &s.Claims[i]; c.Namespace == p.Namespace && slices.Contains(names, c.Name) && holds(c) {
			claims = append(claims, c)
		}
	}
	return claims
}

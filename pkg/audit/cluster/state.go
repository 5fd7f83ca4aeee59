// Package cluster judges a cluster through its API: whether the policies that keep
// tenants' pods in VMs are there and work, who may go round them, and whether what
// runs agrees with what was allocated. It reads; the only requests that create
// something are dry runs in a namespace of its own.
package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/pager"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// State is what the API server says, as far as the checks look at it.
type State struct {
	// Version is the API server's, "v1.36.2".
	Version string
	Options Options

	Namespaces     []corev1.Namespace
	Nodes          map[string]bool
	Pods           []corev1.Pod // with claims or a RuntimeClass, or in a tenant's namespace
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
	// Auditors are the nodes of the chart's audit pods, by the pods' names.
	Auditors map[string]string
	Now      time.Time
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
	// Misfits are the attributes of a device of ours that the driver does not publish, or not of this type.
	Misfits []string
	// Skips are the calls to the driver that the slice tells the kubelet to leave out.
	Skips []resourceapi.SkipNodeOperation
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

// holds reports whether a claim is allocated with a device of kata-vfio.
func holds(c *resourceapi.ResourceClaim) bool {
	return c.Status.Allocation != nil && slices.ContainsFunc(c.Status.Allocation.Devices.Results,
		func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver == v1alpha1.DriverName })
}

// isOurs reports whether a DeviceClass asks for kata-vfio's driver: it has its domain or annotation, or its parameters or
// selectors name the driver. The chart's policy tenant-classes uses the same rule.
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

// claimsOf returns a pod's claims that have a device of kata-vfio.
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

// pageSize is how many objects are requested at once: all pods of a cluster may not fit in memory.
const pageSize = 500

// Client reads the cluster: kube.Client is one.
type Client interface {
	ServerVersion(context.Context) (*version.Info, error)
	List(ctx context.Context, namespace string, list runtime.Object, o metav1.ListOptions) error
	Create(ctx context.Context, namespace string, object runtime.Object, o metav1.CreateOptions) error
}

// Read lists what the checks look at, and makes the dry runs. What can't be listed
// is noted as missing, and makes the checks that need it unknown; an error is for
// an API server that does not answer.
func Read(ctx context.Context, client Client, o Options) (*State, error) {
	server, err := client.ServerVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", err)
	}
	s := &State{Version: server.GitVersion, Options: o, Nodes: map[string]bool{}, Missing: map[string]string{}, Written: map[types.UID]time.Time{}, Auditors: map[string]string{}}
	l := &lister{ctx: ctx, client: client, state: s}
	l.core()
	l.devices()
	l.access()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	if o.ProbeNamespace != "" {
		s.Probes = probe(ctx, client, o, s.withheld())
	}
	return s, nil
}

// componentLabel and nodeAudit are how the chart labels the pods that audit their nodes.
const componentLabel, nodeAudit = "app.kubernetes.io/component", "node-audit"

type lister struct {
	ctx    context.Context
	client Client
	state  *State
}

// each lists a namespace's objects, of all namespaces if it is empty, and calls keep for each.
func each[T runtime.Object](l *lister, kind, namespace string, list runtime.Object, keep func(T)) {
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := list.DeepCopyObject()
		return page, l.client.List(ctx, namespace, page, o)
	})
	p.PageSize = pageSize
	err := p.EachListItem(l.ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if item, ok := o.(T); ok {
			keep(item)
		}
		return nil
	})
	if err != nil {
		l.state.Missing[kind] = err.Error()
	}
}

// add returns a keep that appends.
func add[T any](to *[]T) func(*T) { return func(item *T) { *to = append(*to, *item) } }

func (l *lister) core() {
	s := l.state
	each(l, "namespaces", "", &corev1.NamespaceList{}, add(&s.Namespaces))
	each(l, "nodes", "", &corev1.NodeList{}, func(n *corev1.Node) { s.Nodes[n.Name] = true })
	each(l, "pods", "", &corev1.PodList{}, func(p *corev1.Pod) {
		if p.Namespace == s.Options.Namespace && p.Labels[componentLabel] == nodeAudit {
			s.Auditors[p.Name] = p.Spec.NodeName
		}
		if len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil || p.Spec.RuntimeClassName != nil || s.IsTenant(p.Namespace) {
			p.ManagedFields = nil
			s.Pods = append(s.Pods, *p)
		}
	})
	each(l, "runtimeclasses", "", &nodev1.RuntimeClassList{}, add(&s.RuntimeClasses))
	each(l, "daemonsets", s.Options.Namespace, &appsv1.DaemonSetList{}, add(&s.DaemonSets))
	each(l, "resourcequotas", "", &corev1.ResourceQuotaList{}, add(&s.Quotas))
	each(l, "validatingadmissionpolicies", "", &admissionv1.ValidatingAdmissionPolicyList{}, add(&s.Policies))
	each(l, "validatingadmissionpolicybindings", "", &admissionv1.ValidatingAdmissionPolicyBindingList{}, add(&s.Bindings))
}

func (l *lister) devices() {
	s := l.state
	each(l, "deviceclasses", "", &resourceapi.DeviceClassList{}, add(&s.DeviceClasses))
	each(l, "resourceclaims", "", &resourceapi.ResourceClaimList{}, func(c *resourceapi.ResourceClaim) {
		for _, m := range c.ManagedFields {
			if m.Manager == v1alpha1.DriverName && m.Time != nil {
				s.Written[c.UID] = m.Time.Time
			}
		}
		c.ManagedFields = nil
		s.Claims = append(s.Claims, *c)
	})
	each(l, "resourceslices", "", &resourceapi.ResourceSliceList{}, func(slice *resourceapi.ResourceSlice) {
		for i := range slice.Spec.Devices {
			s.Devices = append(s.Devices, deviceOf(slice, &slice.Spec.Devices[i]))
		}
	})
}

// deviceOf keeps of a device what is looked at: a large cluster has a million.
func deviceOf(slice *resourceapi.ResourceSlice, d *resourceapi.Device) Device {
	kept := Device{
		Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Generation: slice.Spec.Pool.Generation,
		Slice: slice.Name, Name: d.Name, Taints: d.Taints, Skips: slice.Spec.SkipNodeOperations,
	}
	if slice.Spec.Driver == v1alpha1.DriverName {
		kept.Misfits = publish.Misfits(d)
	}
	if slice.Spec.NodeName != nil {
		kept.Node = *slice.Spec.NodeName
	}
	for _, name := range []resourceapi.QualifiedName{"resource.kubernetes.io/pciBusID", "pciBusID", "pciAddress"} {
		if a := d.Attributes[name].StringValue; a != nil {
			kept.Address = *a
			break
		}
	}
	return kept
}

func (l *lister) access() {
	s := l.state
	each(l, "clusterroles", "", &rbacv1.ClusterRoleList{}, add(&s.Roles))
	each(l, "roles", "", &rbacv1.RoleList{}, func(r *rbacv1.Role) {
		s.Roles = append(s.Roles, rbacv1.ClusterRole{ObjectMeta: r.ObjectMeta, Rules: r.Rules})
	})
	each(l, "clusterrolebindings", "", &rbacv1.ClusterRoleBindingList{}, func(b *rbacv1.ClusterRoleBinding) {
		s.grant(b.Subjects, b.RoleRef, b.Name, "")
	})
	each(l, "rolebindings", "", &rbacv1.RoleBindingList{}, func(b *rbacv1.RoleBinding) {
		s.grant(b.Subjects, b.RoleRef, b.Name, b.Namespace)
	})
}

func (s *State) grant(subjects []rbacv1.Subject, role rbacv1.RoleRef, binding, namespace string) {
	for _, subject := range subjects {
		s.Grants = append(s.Grants, Grant{Subject: subject, Role: role.Name, RoleKind: role.Kind, Binding: binding, Namespace: namespace})
	}
}

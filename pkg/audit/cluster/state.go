// Package cluster judges a cluster through its API: whether the policies that keep tenants' pods in VMs exist and work, who can
// bypass them, and whether running pods agree with allocations. It only reads. Its only requests to create objects are dry runs in
// a separate namespace.
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
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// State has the API server's objects that the checks judge.
type State struct {
	// Version is the version of the API server, "v1.36.2".
	Version string
	Options Options

	// Cluster has slices, claims, classes, policies, and the pods that have claims or a RuntimeClass, or are in a tenant's namespace.
	Cluster    *cluster.Cluster
	Namespaces []corev1.Namespace
	Nodes      map[string]bool
	// Labeled has the labels of the nodes for kata-vfio.
	Labeled    map[string]map[string]string
	DaemonSets []appsv1.DaemonSet
	Quotas     []corev1.ResourceQuota
	Roles      []rbacv1.ClusterRole // Roles of namespaces too, with their Namespace set
	Grants     []Grant
	Probes     []Probe
	// Written has the times when the plugin last wrote claims' statuses, by the claims' UIDs.
	Written map[types.UID]time.Time
	// Reports are the nodes' own audits; a node may have several. Now is the time from which their age is computed. The caller of
	// [Read] sets both.
	Reports []*finding.Report
	// Auditors are the nodes of the chart's audit pods, by the pods' names.
	Auditors map[string]string
	Now      time.Time
	// Missing has the reason for each kind of object that could not be listed.
	Missing map[string]string

	// ended are the pods that were listed as running, and ended before their claims were listed, by UID.
	ended map[types.UID]bool
	// tenants are the namespaces of tenants; nil before the first question.
	tenants map[string]bool
	// holders are the namespaces whose claims have devices of ours; nil before the first question.
	holders []string
}

// Options identify kata-vfio's objects in the cluster.
type Options struct {
	// TenantLabel is the label that marks tenants' namespaces, with any value.
	TenantLabel string
	// Namespace is the plugin's namespace.
	Namespace string
	// RuntimeClasses are the RuntimeClasses whose pods may have devices.
	RuntimeClasses []string
	// ProbeNamespace is the namespace of dry runs; empty if there is none.
	ProbeNamespace string
	// SchedulerName is the scheduler that tenants' pods with devices must name; empty if they may name any.
	SchedulerName string
}

// Grant is one subject of a binding.
type Grant struct {
	Subject rbacv1.Subject
	// Role and RoleKind are the bound role, Binding is the binding, and Namespace limits the grant; it is empty for all namespaces.
	Role, RoleKind, Binding, Namespace string
}

// isTenant reports whether a namespace is a tenant's: it has the label.
func (s *State) isTenant(namespace string) bool {
	if s.tenants == nil {
		s.tenants = map[string]bool{}
		for i := range s.Namespaces {
			_, labeled := s.Namespaces[i].Labels[s.Options.TenantLabel]
			s.tenants[s.Namespaces[i].Name] = labeled
		}
	}
	return s.tenants[namespace]
}

// holding returns the namespaces whose claims have devices of ours, sorted.
func (s *State) holding() []string {
	if s.holders == nil {
		s.holders = []string{}
		for _, c := range s.Cluster.Claims() {
			if c.HasOurs() {
				s.holders = append(s.holders, c.Object.Namespace)
			}
		}
		slices.Sort(s.holders)
		s.holders = slices.Compact(s.holders)
	}
	return s.holders
}

// deviceClaims returns a pod's claims that have a device of kata-vfio.
func (s *State) deviceClaims(p *cluster.Pod) []*cluster.Claim {
	return slices.DeleteFunc(s.Cluster.PodClaims(p), func(c *cluster.Claim) bool { return !c.HasOurs() })
}

// pageSize is the number of objects per request: all pods of a cluster may not fit in memory.
const pageSize = 500

// Client reads the cluster: kube.Client is one.
type Client interface {
	ServerVersion(context.Context) (*version.Info, error)
	List(ctx context.Context, namespace string, list runtime.Object, o metav1.ListOptions) error
	Create(ctx context.Context, namespace string, object runtime.Object, o metav1.CreateOptions) error
}

// Read lists the objects that the checks judge, and makes the dry runs. A kind that can't be
// listed is noted as missing, and the checks that need it are unknown. The error means that the
// API server does not answer.
func Read(ctx context.Context, client Client, o Options) (*State, error) {
	server, err := client.ServerVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", err)
	}
	s := &State{Version: server.GitVersion, Options: o, Cluster: &cluster.Cluster{}, Nodes: map[string]bool{}, Labeled: map[string]map[string]string{}, Missing: map[string]string{}, Written: map[types.UID]time.Time{}, Auditors: map[string]string{}}
	l := &lister{ctx: ctx, client: client, state: s}
	l.core()
	l.devices()
	l.podsAgain()
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
		// If a list breaks off, a part of the objects was kept. The kind counts as missing, so that no check takes this part for all objects.
		l.state.Missing[kind] = err.Error()
	}
}

// model is a keep function of [each] that adds the object to the model of the cluster.
func (l *lister) model(o runtime.Object) { l.state.Cluster.Add(o) }

// add returns a keep function of [each] that appends the object to a list.
func add[T any](to *[]T) func(*T) { return func(item *T) { *to = append(*to, *item) } }

func (l *lister) core() {
	s := l.state
	// Namespaces come first, because their labels decide which pods are kept.
	each(l, "namespaces", "", &corev1.NamespaceList{}, add(&s.Namespaces))
	each(l, "nodes", "", &corev1.NodeList{}, func(n *corev1.Node) {
		s.Nodes[n.Name] = true
		if n.Labels[nodeLabel] == "true" {
			s.Labeled[n.Name] = n.Labels
		}
	})
	each(l, "pods", "", &corev1.PodList{}, func(p *corev1.Pod) {
		if p.Namespace == s.Options.Namespace && p.Labels[componentLabel] == nodeAudit {
			s.Auditors[p.Name] = p.Spec.NodeName
		}
		if len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil || p.Spec.RuntimeClassName != nil || s.isTenant(p.Namespace) {
			kept := *p // a pointer to the item would keep its page
			kept.ManagedFields = nil
			s.Cluster.Add(&kept)
		}
	})
	each(l, "runtimeclasses", "", &nodev1.RuntimeClassList{}, l.model)
	each(l, "daemonsets", s.Options.Namespace, &appsv1.DaemonSetList{}, add(&s.DaemonSets))
	each(l, "resourcequotas", "", &corev1.ResourceQuotaList{}, add(&s.Quotas))
	each(l, "validatingadmissionpolicies", "", &admissionv1.ValidatingAdmissionPolicyList{}, l.model)
	each(l, "validatingadmissionpolicybindings", "", &admissionv1.ValidatingAdmissionPolicyBindingList{}, l.model)
}

func (l *lister) devices() {
	s := l.state
	each(l, "deviceclasses", "", &resourceapi.DeviceClassList{}, l.model)
	each(l, "resourceclaims", "", &resourceapi.ResourceClaimList{}, func(c *resourceapi.ResourceClaim) {
		for _, m := range c.ManagedFields {
			// The API server records this time itself. The times in a claim's status are written by the plugin.
			if m.Manager == v1alpha1.DriverName && m.Time != nil {
				s.Written[c.UID] = m.Time.Time
			}
		}
		c.ManagedFields = nil
		s.Cluster.Add(c)
	})
	each(l, "resourceslices", "", &resourceapi.ResourceSliceList{}, l.model)
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
		s.Grants = append(s.Grants, Grant{Subject: asServiceAccount(subject), Role: role.Name, RoleKind: role.Kind, Binding: binding, Namespace: namespace})
	}
}

// asServiceAccount returns the service account that a subject of kind User names, and any other subject as it is.
func asServiceAccount(subject rbacv1.Subject) rbacv1.Subject {
	account, ok := strings.CutPrefix(subject.Name, "system:serviceaccount:")
	namespace, name, named := strings.Cut(account, ":")
	if subject.Kind != rbacv1.UserKind || !ok || !named {
		return subject
	}
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

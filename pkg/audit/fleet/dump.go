package fleet

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// maxDumped is the largest number of objects of one kind in a support bundle.
const maxDumped = 2000

// Lister lists objects: kube.Client is one.
type Lister interface {
	List(ctx context.Context, namespace string, list runtime.Object, o metav1.ListOptions) error
}

// DumpKind is one kind of objects of a support bundle.
type DumpKind struct {
	// Name is the kind's name in the API.
	Name string
	// Namespace is the only namespace that is listed; empty for all.
	Namespace string
	// Keeps says which of the objects, and which of their fields, are in the bundle.
	Keeps string
	// ownToo is set if the plugin's namespace is listed in case the user may not list all namespaces.
	ownToo bool
	page   runtime.Object
}

// DumpKinds returns the kinds of objects of a support bundle. namespace is the plugin's. Secrets are not among them. DeviceClasses
// and claims come first, because they decide which objects of the later kinds are kept.
func DumpKinds(namespace string) []DumpKind {
	return []DumpKind{
		{Name: "deviceclasses", Keeps: "all", page: &resourceapi.DeviceClassList{}},
		{Name: "resourceslices", Keeps: "kata-vfio's", page: &resourceapi.ResourceSliceList{}},
		{Name: "resourceclaims", Keeps: "those for kata-vfio's devices", page: &resourceapi.ResourceClaimList{}},
		{Name: "pods", Keeps: "the plugin's namespace; of pods with such claims: state, claims, resources and images", ownToo: true, page: &corev1.PodList{}},
		{Name: "events", Keeps: "the plugin's namespace; about such claims and pods, and nodes", ownToo: true, page: &corev1.EventList{}},
		{Name: "configmaps", Namespace: namespace, Keeps: "all", page: &corev1.ConfigMapList{}},
		{Name: "daemonsets", Namespace: namespace, Keeps: "all, without values of variables", page: &appsv1.DaemonSetList{}},
		{Name: "deployments", Namespace: namespace, Keeps: "all, without values of variables", page: &appsv1.DeploymentList{}},
		{Name: "nodes", Keeps: "labels, taints, conditions, resources and versions", page: &corev1.NodeList{}},
		{Name: "runtimeclasses", Keeps: "all", page: &nodev1.RuntimeClassList{}},
		{Name: Policies, Keeps: "kata-vfio's", page: &admissionv1.ValidatingAdmissionPolicyList{}},
		{Name: Bindings, Keeps: "kata-vfio's", page: &admissionv1.ValidatingAdmissionPolicyBindingList{}},
	}
}

// Dump adds the objects of a cluster to a support bundle.
type Dump struct {
	// Namespace is the plugin's namespace. Flag is the caller's flag that sets it, which the note names if there is no plugin.
	Namespace, Flag string
	// Mask hides the names of tenants. If it is nil, the names stay.
	Mask *output.Mask
	// Say, which may be nil, shows a line of progress.
	Say func(format string, args ...any)
	// Components are the pods of kata-vfio that were listed.
	Components []*corev1.Pod

	known        *cluster.Cluster
	claims, pods map[string]bool // by namespace/name
	words        words
}

// Add lists each kind. A kind that can't be listed is noted with the reason, and the other kinds are added. It returns the number
// of kinds that were listed.
func (d *Dump) Add(ctx context.Context, client Lister, b *output.Bundle) (listed int, err error) {
	d.known, d.claims, d.pods, d.words = &cluster.Cluster{}, map[string]bool{}, map[string]bool{}, words{known: map[string]bool{}}
	for _, kind := range DumpKinds(d.Namespace) {
		if d.Say != nil {
			d.Say("read %s", kind.Name)
		}
		objects, err := d.list(ctx, client, &kind, b)
		if kind.Name == "pods" {
			d.words.complete()
		}
		if err != nil {
			b.Note(fmt.Sprintf("%s could not be listed: %v", kind.Name, err))
			continue
		}
		listed++
		if kind.Name == "daemonsets" && !slices.ContainsFunc(objects, isPlugins) {
			b.Note(fmt.Sprintf("namespace %s has no DaemonSet of kata-vfio's plugin: set %s to the plugin's namespace", d.Namespace, d.Flag))
		}
		if len(objects) == maxDumped {
			b.Note(fmt.Sprintf("the bundle has the first %[2]d of %[1]s", kind.Name, maxDumped))
		}
		if err := b.AddJSON("cluster/"+kind.Name+".json", objects); err != nil {
			return listed, err
		}
	}
	return listed, nil
}

// isPlugins reports whether a DaemonSet is the plugin's, by the label that the chart gives its pods.
func isPlugins(o runtime.Object) bool {
	d, ok := o.(*appsv1.DaemonSet)
	return ok && d.Spec.Template.Labels[componentLabel] == pluginPart
}

// list lists the objects of a kind that are kept. If the user may not list all namespaces and ownToo is set, it lists the plugin's
// namespace only.
func (d *Dump) list(ctx context.Context, client Lister, kind *DumpKind, b *output.Bundle) ([]runtime.Object, error) {
	objects, err := d.listIn(ctx, client, kind, kind.Namespace)
	if err != nil && kind.ownToo && apierrors.IsForbidden(err) {
		b.Note(fmt.Sprintf("%s are those of namespace %s only: %v", kind.Name, d.Namespace, err))
		return d.listIn(ctx, client, kind, d.Namespace)
	}
	return objects, err
}

// listIn lists the objects of a kind that are kept, up to the limit of a bundle.
func (d *Dump) listIn(ctx context.Context, client Lister, kind *DumpKind, namespace string) ([]runtime.Object, error) {
	kept := []runtime.Object{}
	errEnough := fmt.Errorf("more than %d", maxDumped)
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := kind.page.DeepCopyObject()
		return page, client.List(ctx, namespace, page, o)
	})
	p.PageSize = 500
	err := p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if len(kept) == maxDumped {
			// Only an error ends the pager early. Below, a list that reached the limit counts as read.
			return errEnough
		}
		if o = d.keep(o); o != nil {
			kept = append(kept, o)
		}
		return nil
	})
	if err != nil && len(kept) < maxDumped {
		return nil, err
	}
	return kept, nil
}

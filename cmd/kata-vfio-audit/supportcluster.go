package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// maxObjects is the largest number of objects of one kind in a bundle.
const maxObjects = 2000

// lister reads the cluster: kube.Client is one.
type lister interface {
	List(ctx context.Context, namespace string, list runtime.Object, o metav1.ListOptions) error
}

// listed is one kind of objects: of a namespace, or of all if it is empty.
type listed struct {
	name, namespace string
	page            runtime.Object
}

// ownObjects are the objects in the plugin's namespace, and those of the cluster that concern its devices. They include
// no Secrets.
func ownObjects(namespace string) []listed {
	return []listed{
		{"pods", namespace, &corev1.PodList{}},
		{"configmaps", namespace, &corev1.ConfigMapList{}},
		{"daemonsets", namespace, &appsv1.DaemonSetList{}},
		{"events", namespace, &corev1.EventList{}},
		{"nodes", "", &corev1.NodeList{}},
		{"runtimeclasses", "", &nodev1.RuntimeClassList{}},
		{"deviceclasses", "", &resourceapi.DeviceClassList{}},
		{"resourceslices", "", &resourceapi.ResourceSliceList{}},
		{"resourceclaims", "", &resourceapi.ResourceClaimList{}},
	}
}

// addCluster reads the cluster, if one is named. It notes the kinds that can't be read.
func (s *support) addCluster(ctx context.Context, b *archive.Bundle, mask *archive.Mask) error {
	if !s.cluster.kube.Named() {
		b.Note("the bundle has no cluster objects: --kubeconfig is not set")
		return nil
	}
	client, _, err := s.cluster.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return addObjects(ctx, client, s.namespace, b, mask)
}

func addObjects(ctx context.Context, client lister, namespace string, b *archive.Bundle, mask *archive.Mask) error {
	known := &cluster.Cluster{}
	for _, kind := range ownObjects(namespace) {
		objects, err := listAll(ctx, client, kind)
		if err != nil {
			b.Note(fmt.Sprintf("%s could not be listed: %v", kind.name, err))
			continue
		}
		if kind.name == "daemonsets" && !slices.ContainsFunc(objects, isPlugins) {
			b.Note("namespace " + namespace + " has no DaemonSet of kata-vfio's plugin: set --namespace to the plugin's namespace")
		}
		if len(objects) == maxObjects {
			b.Note(fmt.Sprintf("the bundle has the first %[2]d of %[1]s", kind.name, maxObjects))
		}
		objects = kept(objects, known, mask)
		if err := b.AddJSON("cluster/"+kind.name+".json", objects); err != nil {
			return err
		}
	}
	return nil
}

// isPlugins reports whether a DaemonSet is the plugin's, by the label that the chart gives its pods.
func isPlugins(o runtime.Object) bool {
	d, ok := o.(*appsv1.DaemonSet)
	return ok && d.Spec.Template.Labels["app.kubernetes.io/component"] == "plugin"
}

// listAll lists the objects of a kind, up to the limit of a bundle.
func listAll(ctx context.Context, client lister, kind listed) ([]runtime.Object, error) {
	objects := []runtime.Object{}
	errEnough := fmt.Errorf("more than %d", maxObjects)
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := kind.page.DeepCopyObject()
		return page, client.List(ctx, kind.namespace, page, o)
	})
	p.PageSize = maxObjects
	err := p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if len(objects) == maxObjects {
			return errEnough
		}
		objects = append(objects, o)
		return nil
	})
	if err != nil && len(objects) < maxObjects {
		return nil, err
	}
	return objects, nil
}

// kept returns the objects that concern the driver, without fields of no use, and hides the tenants that they
// name. The DeviceClasses among them become known: they say which waiting claims are for the driver.
func kept(objects []runtime.Object, known *cluster.Cluster, mask *archive.Mask) []runtime.Object {
	left := []runtime.Object{}
	for _, o := range objects {
		if m, err := meta.Accessor(o); err == nil {
			m.SetManagedFields(nil)
			delete(m.GetAnnotations(), "kubectl.kubernetes.io/last-applied-configuration")
		}
		switch o := o.(type) {
		case *corev1.Pod:
			hideEnvironment(&o.Spec)
		case *appsv1.DaemonSet:
			hideEnvironment(&o.Spec.Template.Spec)
		case *resourceapi.DeviceClass:
			known.Add(o)
		case *resourceapi.ResourceSlice:
			if o.Spec.Driver != v1alpha1.DriverName {
				continue
			}
		case *resourceapi.ResourceClaim:
			if !known.IsOurs(cluster.DecodeClaim(o)) {
				continue
			}
			hideClaim(o, mask)
		}
		left = append(left, o)
	}
	return left
}

// hideEnvironment removes the values of environment variables: the name of a variable does not show whether it
// holds a credential.
func hideEnvironment(spec *corev1.PodSpec) {
	hide := func(env []corev1.EnvVar) {
		for i := range env {
			if env[i].Value != "" {
				env[i].Value = "(left out)"
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

// hideClaim hides a claim's names. A masked bundle leaves out its labels and annotations, which are the tenant's
// own words.
func hideClaim(c *resourceapi.ResourceClaim, mask *archive.Mask) {
	if mask == nil {
		return
	}
	mask.Hide(c.Namespace, c.Name)
	for i := range c.Status.ReservedFor {
		mask.Hide(c.Status.ReservedFor[i].Name)
	}
	for i := range c.OwnerReferences {
		mask.Hide(c.OwnerReferences[i].Name)
	}
	c.Labels, c.Annotations, c.GenerateName = nil, nil, ""
}

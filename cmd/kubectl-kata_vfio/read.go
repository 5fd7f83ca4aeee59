package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// want selects the objects to list.
type want struct {
	// needs are the kinds that are required; also are those that add to them.
	needs, also []fleet.Kind
	// permitted are those of also that the user must have the right to list.
	permitted []fleet.Kind
	// namespace is the namespace of claims, pods and events; empty for all.
	namespace string
	// labels selects claims; empty for all.
	labels string
	// node is the node of the devices; empty for all.
	node string
	// pod is the name of a pod that is kept without a claim, too.
	pod string
	// eventKind is the kind of objects of the events; empty for all.
	eventKind string
	// now is the clock for ages.
	now func() time.Time
}

// lister reads the cluster: kube.Client is one.
type lister interface {
	List(ctx context.Context, namespace string, list runtime.Object, o metav1.ListOptions) error
	Get(ctx context.Context, namespace, name string, object runtime.Object) error
	Watch(ctx context.Context, namespace string, list runtime.Object, o metav1.ListOptions) (watch.Interface, error)
	ServerVersion(ctx context.Context) (*version.Info, error)
	Resources(ctx context.Context) ([]schema.GroupResource, error)
	Logs(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error)
}

// changer also creates and deletes objects, for `test`, `drain` and `undrain`.
type changer interface {
	lister
	Create(ctx context.Context, namespace string, object runtime.Object, o metav1.CreateOptions) error
	Delete(ctx context.Context, namespace, name string, object runtime.Object, o metav1.DeleteOptions) error
}

// listing describes the lists and watches of a kind.
type listing struct {
	client       lister
	object, page runtime.Object
	namespace    string
	// selector selects by fields, and labels by labels.
	selector, labels string
}

func (k *listing) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.FieldSelector, o.LabelSelector = k.selector, k.labels
	page := k.page.DeepCopyObject()
	return page, k.client.List(ctx, k.namespace, page, o)
}

func (k *listing) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.FieldSelector, o.LabelSelector = k.selector, k.labels
	return k.client.Watch(ctx, k.namespace, k.page, o)
}

func (w *want) kind(client lister, kind fleet.Kind) listing {
	switch kind {
	case fleet.Slices:
		selector := resourceapi.ResourceSliceSelectorDriver + "=" + v1alpha1.DriverName
		if w.node != "" {
			selector += "," + resourceapi.ResourceSliceSelectorNodeName + "=" + w.node
		}
		return listing{client, &resourceapi.ResourceSlice{}, &resourceapi.ResourceSliceList{}, "", selector, ""}
	case fleet.Claims:
		return listing{client, &resourceapi.ResourceClaim{}, &resourceapi.ResourceClaimList{}, w.namespace, "", w.labels}
	case fleet.Pods:
		return listing{client, &corev1.Pod{}, &corev1.PodList{}, w.namespace, "", ""}
	case fleet.Classes:
		return listing{client, &resourceapi.DeviceClass{}, &resourceapi.DeviceClassList{}, "", "", ""}
	case fleet.Components:
		return listing{client, &corev1.Pod{}, &corev1.PodList{}, "", "", fleet.ComponentSelector}
	case fleet.DaemonSets:
		return listing{client, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{}, "", "", fleet.ComponentSelector}
	case fleet.Deployments:
		return listing{client, &appsv1.Deployment{}, &appsv1.DeploymentList{}, "", "", fleet.ComponentSelector}
	case fleet.TaintRules:
		return listing{client, &resourceapi.DeviceTaintRule{}, &resourceapi.DeviceTaintRuleList{}, "", "", ""}
	case fleet.Events, fleet.Namespaces, fleet.ClassViews:
	}
	selector := ""
	if w.eventKind != "" {
		selector = "involvedObject.kind=" + w.eventKind
	}
	return listing{client, &corev1.Event{}, &corev1.EventList{}, w.namespace, selector, ""}
}

// pageSize is the number of objects per request.
const pageSize = 500

// read lists the wanted objects. The error is a [forbiddenError] if the user may not
// list a kind of needs or permitted.
func (w *want) read(ctx context.Context, client lister) (*fleet.State, error) {
	state := w.state(nil)
	for _, kind := range slices.Concat(w.needs, w.also) {
		err := w.readKind(ctx, w.kind(client, kind), state)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, fmt.Errorf("list %s: %w", kind, context.Cause(ctx))
		case slices.Contains(w.permitted, kind) && apierrors.IsForbidden(err):
			return nil, &forbiddenError{kind: kind, err: err}
		case !slices.Contains(w.needs, kind) && apierrors.IsForbidden(err):
			state.Missing[kind] = "it is not permitted"
		case !slices.Contains(w.needs, kind):
			state.Missing[kind] = err.Error()
		case apierrors.IsForbidden(err):
			return nil, &forbiddenError{kind: kind, err: err}
		default:
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
	}
	return state, nil
}

// state returns a state without objects.
func (w *want) state(missing map[fleet.Kind]string) *fleet.State {
	if missing == nil {
		missing = map[fleet.Kind]string{}
	}
	return &fleet.State{Cluster: &cluster.Cluster{}, Missing: missing, Namespace: w.namespace, Now: w.now()}
}

func (w *want) readKind(ctx context.Context, k listing, state *fleet.State) error {
	p := pager.New(k.list)
	p.PageSize = pageSize
	return p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		w.put(state, o)
		return nil
	})
}

// put adds a listed object.
func (w *want) put(s *fleet.State, o any) {
	switch o := o.(type) {
	case *resourceapi.ResourceSlice:
		if w.node == "" || o.Spec.NodeName != nil && *o.Spec.NodeName == w.node {
			s.Cluster.Add(o)
		}
	case *resourceapi.ResourceClaim:
		c := *o // the objects of a watch are shared
		c.ManagedFields = nil
		s.Cluster.Add(&c)
	case *appsv1.DaemonSet:
		s.DaemonSets = append(s.DaemonSets, *o)
	case *appsv1.Deployment:
		s.Deployments = append(s.Deployments, *o)
	case *corev1.Pod:
		if fleet.IsComponent(o) {
			s.Components = append(s.Components, *o)
		}
		if o.Name == w.pod || len(o.Spec.ResourceClaims) > 0 || o.Status.ExtendedResourceClaimStatus != nil {
			p := *o
			p.ManagedFields = nil
			s.Cluster.Add(&p)
		}
	case *corev1.Event:
		s.Events = append(s.Events, *o)
	case *resourceapi.DeviceTaintRule:
		s.TaintRules = append(s.TaintRules, *o)
	default:
		s.Cluster.Add(o)
	}
}

// forbiddenError says that the user may not list a kind.
type forbiddenError struct {
	kind fleet.Kind
	err  error
}

func (e *forbiddenError) Error() string {
	text := fmt.Sprintf("you may not list %s: %v; ", e.kind, e.err)
	if e.kind == fleet.ClassViews {
		return text + "either the cluster's admin has not switched the view on (values: kubectl.classes.enabled), or you are none of its readers (kubectl.classes.readers)"
	}
	if e.kind == fleet.Slices {
		return text + "the chart's ClusterRole kata-vfio-view grants it (values: kubectl.viewers); for your namespace's claims the role view is " +
			"enough: `kubectl kata-vfio claims -n NAMESPACE`"
	}
	return text + "the role view grants it in a namespace (-n), the chart's ClusterRole kata-vfio-view everywhere (values: kubectl.viewers)"
}

// Unwrap returns the API server's error.
func (e *forbiddenError) Unwrap() error { return e.err }

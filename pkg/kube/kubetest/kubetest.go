// Package kubetest adapts client-go's fake clientset to the methods of kube.Client.
package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/kube"
)

// Client answers from the clientset's objects and reactors.
type Client struct{ Clientset *fake.Clientset }

// New returns a client of a clientset.
func New(clientset *fake.Clientset) *Client { return &Client{Clientset: clientset} }

// findResource returns the resource and the kind of an object's or a list's items.
func findResource(object runtime.Object) (schema.GroupVersionResource, schema.GroupVersionKind, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return schema.GroupVersionResource{}, schema.GroupVersionKind{}, err
	}
	resource, err := kube.FindResource(scheme, object)
	if err != nil {
		return resource, schema.GroupVersionKind{}, err
	}
	kinds, _, err := scheme.ObjectKinds(object)
	if err != nil {
		return resource, schema.GroupVersionKind{}, err
	}
	kind := kinds[0]
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	return resource, kind, nil
}

// ServerVersion returns the fake's version.
func (c *Client) ServerVersion(context.Context) (*version.Info, error) {
	return c.Clientset.Discovery().ServerVersion()
}

// Resources returns the resources that the test has put into the clientset's Resources.
func (c *Client) Resources(context.Context) ([]schema.GroupResource, error) {
	var all []schema.GroupResource
	for _, list := range c.Clientset.Resources {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		all = append(all, schema.GroupResource{Group: gv.Group})
		for i := range list.APIResources {
			all = append(all, schema.GroupResource{Group: gv.Group, Resource: list.APIResources[i].Name})
		}
	}
	return all, nil
}

// IsWatchListSemanticsUnSupported tells a reflector that a watch does not begin with a list here.
func (c *Client) IsWatchListSemanticsUnSupported() bool { return true }

// List fills a list.
func (c *Client) List(_ context.Context, namespace string, list runtime.Object, o metav1.ListOptions) error {
	resource, kind, err := findResource(list)
	if err != nil {
		return err
	}
	answer, err := c.Clientset.Invokes(testing.NewListActionWithOptions(resource, kind, namespace, o), list)
	if err != nil {
		return err
	}
	if err := fill(list, answer); err != nil {
		return err
	}
	return selectLabels(list, o.LabelSelector)
}

// Get fills an object.
func (c *Client) Get(_ context.Context, namespace, name string, object runtime.Object) error {
	resource, _, err := findResource(object)
	if err != nil {
		return err
	}
	answer, err := c.Clientset.Invokes(testing.NewGetAction(resource, namespace, name), object)
	if err != nil {
		return err
	}
	return fill(object, answer)
}

// Logs returns what a reactor answers for the subresource log of pods, as a [runtime.Unknown]; otherwise nothing.
func (c *Client) Logs(_ context.Context, namespace, pod string, _ *corev1.PodLogOptions) (io.ReadCloser, error) {
	answer, err := c.Clientset.Invokes(testing.NewGetSubresourceAction(corev1.SchemeGroupVersion.WithResource("pods"), namespace, "log", pod), &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	text, _ := answer.(*runtime.Unknown)
	if text == nil {
		text = &runtime.Unknown{}
	}
	return io.NopCloser(bytes.NewReader(text.Raw)), nil
}

// selectLabels keeps the objects with the labels, as an API server does and the clientset's tracker does not.
func selectLabels(list runtime.Object, selector string) error {
	wanted, err := labels.Parse(selector)
	if err != nil {
		return err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o runtime.Object) bool {
		m, err := meta.Accessor(o)
		return err == nil && !wanted.Matches(labels.Set(m.GetLabels()))
	})
	return meta.SetList(list, objects)
}

// Watch watches the objects of a list.
func (c *Client) Watch(_ context.Context, namespace string, list runtime.Object, o metav1.ListOptions) (watch.Interface, error) {
	resource, _, err := findResource(list)
	if err != nil {
		return nil, err
	}
	o.Watch = true
	return c.Clientset.InvokesWatch(testing.NewWatchActionWithOptions(resource, namespace, o))
}

// Create creates an object.
func (c *Client) Create(_ context.Context, namespace string, object runtime.Object, o metav1.CreateOptions) error {
	resource, _, err := findResource(object)
	if err != nil {
		return err
	}
	answer, err := c.Clientset.Invokes(testing.NewCreateActionWithOptions(resource, namespace, object, o), object)
	if err != nil {
		return err
	}
	return fill(object, answer)
}

// Delete deletes an object.
func (c *Client) Delete(_ context.Context, namespace, name string, object runtime.Object, o metav1.DeleteOptions) error {
	resource, _, err := findResource(object)
	if err != nil {
		return err
	}
	_, err = c.Clientset.Invokes(testing.NewDeleteActionWithOptions(resource, namespace, name, o), object)
	return err
}

// fill copies an answer into the object that the caller gave.
func fill(into, answer runtime.Object) error {
	to, from := reflect.ValueOf(into), reflect.ValueOf(answer)
	if to.Type() != from.Type() {
		return fmt.Errorf("the clientset answered with a %T instead of a %T", answer, into)
	}
	to.Elem().Set(from.Elem())
	return nil
}

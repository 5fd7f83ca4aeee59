package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Client reads the objects that the commands need, and creates and deletes some. It knows only the API groups of these objects, because
// client-go's whole clientset makes a program 12 MB larger. It is safe for concurrent use.
type Client struct {
	scheme *runtime.Scheme
	params runtime.ParameterCodec
	http   *http.Client
	groups map[schema.GroupVersion]rest.Interface
	server rest.Interface // without a group
}

// NewClient returns a client of the cluster. It sends no request.
func NewClient(config *rest.Config) (*Client, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	c := &Client{scheme: scheme, params: runtime.NewParameterCodec(scheme), groups: map[schema.GroupVersion]rest.Interface{}}
	config = rest.CopyConfig(config)
	config.RateLimiter = limiter(config.QPS)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	for _, group := range scheme.PrioritizedVersionsAllGroups() {
		if c.groups[group], err = c.group(config, group); err != nil {
			return nil, err
		}
	}
	c.server, err = c.group(config, schema.GroupVersion{})
	return c, err
}

// limiter returns the limit of requests that all groups share: client-go's own limit, or none if QPS is negative, as in
// client-go.
func limiter(qps float32) flowcontrol.RateLimiter {
	if qps < 0 {
		return flowcontrol.NewFakeAlwaysRateLimiter()
	}
	return flowcontrol.NewTokenBucketRateLimiter(rest.DefaultQPS, rest.DefaultBurst)
}

// group returns a client of one API group.
func (c *Client) group(config *rest.Config, group schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &group
	if config.APIPath = "/apis"; group.Group == "" {
		config.APIPath = "/api"
	}
	client, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster for %s: %w", group, err)
	}
	return client, nil
}

// NewScheme returns a scheme of the API groups that the commands read.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	var failed []error
	for _, add := range []func(*runtime.Scheme) error{
		admissionv1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, corev1.AddToScheme, nodev1.AddToScheme, rbacv1.AddToScheme, resourceapi.AddToScheme,
	} {
		failed = append(failed, add(scheme))
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := errors.Join(failed...); err != nil {
		return nil, fmt.Errorf("register the API groups: %w", err)
	}
	return scheme, nil
}

// FindResource returns the resource of an object's or a list's type, as its URL names it: v1 pods of a *corev1.PodList.
func FindResource(scheme *runtime.Scheme, object runtime.Object) (schema.GroupVersionResource, error) {
	kinds, _, err := scheme.ObjectKinds(object)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("name the resource of a %T: %w", object, err)
	}
	kind := kinds[0]
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	// Discovery would cost a request. The plurals of the kinds in use are regular.
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource, nil
}

// ServerVersion returns the API server's version.
func (c *Client) ServerVersion(ctx context.Context) (*version.Info, error) {
	data, err := c.server.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var info version.Info
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, fmt.Errorf("decode the API server's version: %w", err)
	}
	return &info, nil
}

// discovery is the form of /apis that has the resources of all groups in one answer. Kubernetes 1.30 and newer have it.
const discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Resources returns the API groups that the API server serves, each as an entry without a resource, and the resources of each group. It
// includes those of extensions, but not the core group. Every authenticated user may ask for them.
func (c *Client) Resources(ctx context.Context) ([]schema.GroupResource, error) {
	data, err := c.server.Get().AbsPath("/apis").SetHeader("Accept", discovery).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(data, &groups); err != nil {
		return nil, fmt.Errorf("decode the API server's resources: %w", err)
	}
	if groups.Kind != "APIGroupDiscoveryList" {
		return nil, fmt.Errorf("the API server lists its resources as %q, want APIGroupDiscoveryList: it is older than Kubernetes 1.30", groups.Kind)
	}
	var all []schema.GroupResource
	for _, group := range groups.Items {
		all = append(all, schema.GroupResource{Group: group.Name})
		for _, v := range group.Versions {
			for _, r := range v.Resources {
				all = append(all, schema.GroupResource{Group: group.Name, Resource: r.Resource})
			}
		}
	}
	return all, nil
}

// List fills a list, such as a *corev1.PodList, with the objects of a namespace, or with those of all namespaces if namespace is empty.
func (c *Client) List(ctx context.Context, namespace string, list runtime.Object, o metav1.ListOptions) error {
	r, err := c.request(rest.Interface.Get, namespace, list)
	if err != nil {
		return err
	}
	return r.VersionedParams(&o, c.params).Do(ctx).Into(list)
}

// Get fills an object with the object of the name. If namespace is empty, it reads a cluster-scoped object.
func (c *Client) Get(ctx context.Context, namespace, name string, object runtime.Object) error {
	r, err := c.request(rest.Interface.Get, namespace, object)
	if err != nil {
		return err
	}
	return r.Name(name).Do(ctx).Into(object)
}

// Logs returns the log of a container. The caller closes it.
func (c *Client) Logs(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	r, err := c.request(rest.Interface.Get, namespace, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	return r.Name(pod).SubResource("log").VersionedParams(o, c.params).Stream(ctx)
}

// Watch watches the objects that [Client.List] lists.
func (c *Client) Watch(ctx context.Context, namespace string, list runtime.Object, o metav1.ListOptions) (watch.Interface, error) {
	r, err := c.request(rest.Interface.Get, namespace, list)
	if err != nil {
		return nil, err
	}
	o.Watch = true
	return r.VersionedParams(&o, c.params).Watch(ctx)
}

// Create creates an object, and overwrites it with the API server's answer.
func (c *Client) Create(ctx context.Context, namespace string, object runtime.Object, o metav1.CreateOptions) error {
	r, err := c.request(rest.Interface.Post, namespace, object)
	if err != nil {
		return err
	}
	return r.VersionedParams(&o, c.params).Body(object).Do(ctx).Into(object)
}

// Delete deletes the object of the name, which has the type of the given one.
func (c *Client) Delete(ctx context.Context, namespace, name string, object runtime.Object, o metav1.DeleteOptions) error {
	r, err := c.request(rest.Interface.Delete, namespace, object)
	if err != nil {
		return err
	}
	return r.Name(name).Body(&o).Do(ctx).Error()
}

// request begins a request for the resource of an object's type.
func (c *Client) request(verb func(rest.Interface) *rest.Request, namespace string, object runtime.Object) (*rest.Request, error) {
	resource, err := FindResource(c.scheme, object)
	if err != nil {
		return nil, err
	}
	return verb(c.groups[resource.GroupVersion()]).NamespaceIfScoped(namespace, namespace != "").Resource(resource.Resource), nil
}

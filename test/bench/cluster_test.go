//go:build e2e

package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

const (
	nodeName    = "bench-node"
	className   = "kata-gpu"
	deviceClass = "bench.kata-vfio.dev"
	namespace   = "default"
)

// cluster is a real control plane with one node, which has no kubelet: the benchmark asks the plugin itself.
type cluster struct {
	*controlplane.ControlPlane
	admin *kubernetes.Clientset
}

// newCluster starts one; see controlplane.Start for what that takes.
func newCluster(b *testing.B) *cluster {
	b.Helper()
	plane, err := controlplane.Start(b.Context(), controlplane.Config{Progress: os.Stderr})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(plane.Stop)
	config, err := plane.RESTConfig(controlplane.Admin())
	if err != nil {
		b.Fatal(err)
	}
	c := &cluster{ControlPlane: plane}
	if c.admin, err = kubernetes.NewForConfig(config); err != nil {
		b.Fatal(err)
	}
	_, err = c.admin.CoreV1().Nodes().Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	_, err = c.admin.NodeV1().RuntimeClasses().Create(b.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Handler: v1alpha1.DefaultHandler,
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	_, err = c.admin.ResourceV1().DeviceClasses().Create(b.Context(), plugintest.DeviceClass(deviceClass, "*", plugintest.Untagged), metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// kubeconfig is the administrator's file.
func (c *cluster) kubeconfig(b *testing.B) string {
	b.Helper()
	path, err := c.KubeconfigFile(controlplane.Admin(), "")
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// offer is a published device that a claim can have.
type offer struct{ pool, device string }

// published waits until the node offers that many devices, and returns all that it does.
func (c *cluster) published(b *testing.B, want int) []offer {
	b.Helper()
	var all []offer
	eventually(b, "the node's devices are published", func(ctx context.Context) error {
		list, err := c.admin.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=" + v1alpha1.DriverName})
		if err != nil {
			return err
		}
		all = nil
		for i := range list.Items {
			all = append(all, offersOf(&list.Items[i].Spec)...)
		}
		if len(all) < want {
			return fmt.Errorf("%d devices in %d slices, want %d devices", len(all), len(list.Items), want)
		}
		return nil
	})
	return all
}

func offersOf(s *resourcev1.ResourceSliceSpec) []offer {
	var all []offer
	for _, d := range s.Devices {
		if len(d.Taints) == 0 {
			all = append(all, offer{pool: s.Pool.Name, device: d.Name})
		}
	}
	return all
}

// tenant is a pod on the node with a claim that is allocated and reserved for it.
type tenant struct {
	offer
	pod   *corev1.Pod
	claim *resourcev1.ResourceClaim
}

// tenants makes a pod and a claim for each device. The names have the prefix.
func (c *cluster) tenants(b *testing.B, prefix string, offers []offer) []*tenant {
	b.Helper()
	all := make([]*tenant, len(offers))
	for i, o := range offers {
		all[i] = &tenant{offer: o}
	}
	err := inParallel(b.Context(), all, func(ctx context.Context, t *tenant) error {
		return c.create(ctx, prefix+"-"+t.device, t)
	})
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// inParallel does the work for some tenants at once, and stops at the first error.
func inParallel(ctx context.Context, all []*tenant, work func(context.Context, *tenant) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, t := range all {
		g.Go(func() error { return work(ctx, t) })
	}
	return g.Wait()
}

// create makes the objects of a tenant, with the allocation that a scheduler would write.
func (c *cluster) create(ctx context.Context, name string, t *tenant) error {
	var err error
	if t.pod, err = c.admin.CoreV1().Pods(namespace).Create(ctx, podOf(name), metav1.CreateOptions{}); err != nil {
		return err
	}
	claims := c.admin.ResourceV1().ResourceClaims(namespace)
	made, err := claims.Create(ctx, claimOf(name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status = resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
			Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "device", Driver: v1alpha1.DriverName, Pool: t.pool, Device: t.device},
			},
			Config: []resourcev1.DeviceAllocationConfiguration{{
				Source: resourcev1.AllocationConfigSourceClass, DeviceConfiguration: resourcev1.DeviceConfiguration{
					Opaque: &resourcev1.OpaqueDeviceConfiguration{
						Driver: v1alpha1.DriverName, Parameters: apiruntime.RawExtension{Raw: []byte(plugintest.Untagged)},
					},
				},
			}},
		}},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: t.pod.Name, UID: t.pod.UID}},
	}
	t.claim, err = claims.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// newPod is bound to the node, and stays although nothing says that the node is alive.
func podOf(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, RuntimeClassName: new(className),
			Tolerations:    []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: new(name)}},
			Containers: []corev1.Container{{
				Name: "main", Image: "example.com/none:1",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "device"}}},
			}},
		},
	}
}

func claimOf(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: deviceClass}},
		}}},
	}
}

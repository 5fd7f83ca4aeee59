//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// counting are values for the count of GPUs.
const counting = "kai: {countGPUs: true}"

// publishFleet has the plugin of a node publish the slices of a config, which the node owns, and returns them.
func publishFleet(t *testing.T, p *controlplane.ControlPlane, name string, node *publish.Node, quarantined ...string) []*resourcev1.ResourceSlice {
	t.Helper()
	addFitNode(t, p, name)
	keepReady(t, p, name)
	owner, err := client(t, p, controlplane.Admin()).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*resourcev1.ResourceSlice
	for _, s := range fleet.Slices(publish.Pools(node), name, name) {
		for _, address := range quarantined {
			quarantine(s, address)
		}
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: owner.UID}}
		all = append(all, published(t, p, pluginOn(t, p, name).ResourceV1().ResourceSlices(), s))
	}
	return all
}

// countGPUs runs the controller, which counts GPUs, with the account and the rights that the chart gives it.
func countGPUs(t *testing.T, p *controlplane.ControlPlane) {
	t.Helper()
	systemNamespace(t, p)
	applyController(t, p, counting)
	runsDaemon(t, &controller.Daemon{Cluster: asController(t, p), CountGPUs: true, Identity: "counts"})
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.Kubectl(context.Background(), "delete", "resourceslices", "--field-selector=spec.driver="+controller.GPUCountDriver); err != nil {
			t.Error(err)
		}
	})
}

// awaitCount waits until a node has as many placeholders.
func awaitCount(t *testing.T, admin *kubernetes.Clientset, node string, want int) {
	t.Helper()
	until(t, fmt.Sprintf("%d GPUs of node %s are counted", want, node), func(ctx context.Context) error {
		list, err := admin.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node + ",spec.driver=" + controller.GPUCountDriver})
		if err != nil {
			return err
		}
		got := 0
		for i := range list.Items {
			got += len(list.Items[i].Spec.Devices)
		}
		if got != want {
			return fmt.Errorf("%d are", got)
		}
		return nil
	})
}

// TestGPUsAreCounted: with the rights of the chart, the controller publishes how many GPUs a node has, follows their taints, writes the
// count again after a kubelet deleted it, and may write no other driver's slices.
func TestGPUsAreCounted(t *testing.T) {
	p := installed(t)
	countGPUs(t, p)
	addPolicy(t, p, "gpu-counts.kata-vfio.dev", "gpu-counts.e2e.example.com", counting)
	admin := client(t, p, controlplane.Admin())
	const node = "e2e-counted"
	slices := publishFleet(t, p, node, fleet.Node(node, 2, nil))
	awaitCount(t, admin, node, fleet.Rails)
	for _, s := range slices {
		changed := s.DeepCopy()
		if quarantine(changed, quarantinedGPU); len(changed.Spec.Devices) == 0 {
			continue
		}
		if _, err := pluginOn(t, p, node).ResourceV1().ResourceSlices().Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitCount(t, admin, node, fleet.Rails-1)
	if _, err := p.Kubectl(t.Context(), "delete", "resourceslices", "--field-selector=spec.driver="+controller.GPUCountDriver); err != nil {
		t.Fatal(err)
	}
	awaitCount(t, admin, node, fleet.Rails-1)
	other := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "e2e-forged"}}
	other.Spec = resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: new(node), Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "one"}},
	}
	byController, err := kubernetes.NewForConfig(asController(t, p))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the policy is in force", func(ctx context.Context) error {
		if _, err := byController.ResourceV1().ResourceSlices().Create(ctx, other, dryRunCreate()); err == nil {
			return fmt.Errorf("the controller may publish devices of %s", other.Spec.Driver)
		}
		return nil
	})
	_, err = byController.ResourceV1().ResourceSlices().Create(t.Context(), other, dryRunCreate())
	wantForbidden(t, err, "kata-vfio-controller may write ResourceSlices of driver gpu-count.kata-vfio.dev only")
}

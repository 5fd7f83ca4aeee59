package plugin_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
	"github.com/kata-vfio/kata-vfio/test/vendordriver"
)

// poolNode is a node whose GPU containers get by the vendor's driver, and VMs by ours.
type poolNode struct {
	*plugintest.Node
	gpu     pci.Address
	kubelet *plugintest.Kubelet
	vendor  *vendordriver.Driver
}

// newPoolNode returns the node. Its plugin asks the kubelet by the kubelet's socket and protocol.
func newPoolNode(t *testing.T, claims ...*resourceapi.ResourceClaim) *poolNode {
	t.Helper()
	n := &poolNode{Node: plugintest.New(t)}
	n.gpu = n.Kernel.AddGPU(0x3b)
	n.Reopen(func(c *prepare.Config) {
		c.Node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
			{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, SharedWith: vendordriver.Name},
		}}
		c.Node.Default()
	})
	n.Twins = func(client kubernetes.Interface) dra.Exclusion {
		n.vendor = vendordriver.New(vendordriver.Config{
			Client: client, Node: "worker-1", GPUs: []vendordriver.GPU{{Address: n.gpu}}, KernelDriver: n.Driver,
		})
		if err := n.vendor.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		return &dra.Twins{
			Node: "worker-1", Claims: client.ResourceV1().ResourceClaims(metav1.NamespaceAll), Slices: client.ResourceV1().ResourceSlices(),
			Pods: n.podResources(), SharedWith: n.sharedWith,
		}
	}
	n.kubelet = plugintest.Serve(t, n.Node, n.Claims, "")
	for _, c := range claims {
		if err := n.kubelet.Client.Tracker().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n *poolNode) sharedWith(_ context.Context, a pci.Address) (string, error) {
	return nodeconfig.Select(n.Config.Node, n.Snapshot()).Choice(a).SharedWith, nil
}

// podResources serves the kubelet's pod-resources API, which lists the pods of the vendor's claims, and returns a client.
func (n *poolNode) podResources() podresourcesv1.PodResourcesListerClient {
	n.T.Helper()
	dir, err := os.MkdirTemp("", "pr") // the path of a socket has at most 107 bytes
	if err != nil {
		n.T.Fatal(err)
	}
	socket := filepath.Join(dir, "kubelet.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		n.T.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesv1.RegisterPodResourcesListerServer(server, listing{node: n})
	go func() { _ = server.Serve(listener) }() // it ends by Stop
	client, closer, err := podres.DialKubelet(socket)
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() {
		_ = closer.Close()
		server.Stop()
		_ = os.RemoveAll(dir)
	})
	return client
}

// listing is the kubelet's List.
type listing struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	node *poolNode
}

func (l listing) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	return l.node.vendor.List(), nil
}

// published returns the kernel driver that the slice says now.
func (n *poolNode) published() string {
	n.T.Helper()
	if err := n.Publisher.Publish(n.T.Context(), &plugintest.Recorder{}, n.Snapshot()); err != nil {
		n.T.Fatal(err)
	}
	driver := n.Publisher.Attributes("gpu-0000-3b-00-0")["driver"].StringValue
	if driver == nil {
		return ""
	}
	return *driver
}

// vmClaim has the GPU from our pool, reserved by the controller.
func vmClaim() *resourceapi.ResourceClaim {
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	c.Status.Allocation.Devices.Results[0].Pool = "worker-1/kata-vfio.dev/shared"
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: v1alpha1.DriverName, Pool: "worker-1/kata-vfio.dev/shared", Device: "gpu-0000-3b-00-0",
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionTwinReserved, Status: metav1.ConditionTrue, Reason: "Free", LastTransitionTime: metav1.NewTime(time.Now())}},
	}}
	return c
}

// containerClaim has the GPU from the vendor's pool.
func containerClaim(gpu pci.Address) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "container", UID: "container"},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: vendordriver.Name, Pool: "worker-1", Device: vendordriver.Device(gpu, 0)}},
		}}},
	}
}

// TestOnePoolForContainersAndVMs: the GPU goes from a container to a VM and back, and each side is refused while the other has it,
// also where the scheduler and the controller are wrong.
func TestOnePoolForContainersAndVMs(t *testing.T) {
	vm := vmClaim()
	n := newPoolNode(t, vm)
	container := containerClaim(n.gpu)
	refused := func(words string) {
		t.Helper()
		if answer := n.kubelet.Prepare(vm)["uid-1"]; !strings.Contains(answer.Error, words) || n.Driver(n.gpu) != "nvidia" {
			t.Errorf("prepared: %v, on %s; want %q", answer, n.Driver(n.gpu), words)
		}
	}

	if err := n.kubelet.Client.Tracker().Add(container); err != nil {
		t.Fatal(err)
	}
	refused("is allocated to a claim")
	if err := n.vendor.Prepare(t.Context(), container); err != nil {
		t.Fatal(err)
	}
	if err := n.kubelet.Client.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), container.Namespace, container.Name); err != nil {
		t.Fatal(err)
	}
	refused("a pod on this node has device") // the claim is gone by force, and the container runs

	if err := n.vendor.Unprepare(t.Context(), container.UID); err != nil {
		t.Fatal(err)
	}
	if answer := n.kubelet.Prepare(vm)["uid-1"]; answer.Error != "" || n.published() != "vfio-pci" {
		t.Fatalf("prepared: %v, published on %s", answer, n.published())
	}
	if err := n.vendor.Prepare(t.Context(), container); err == nil || len(n.vendor.Users(n.gpu)) > 0 {
		t.Errorf("a container has the VM's GPU: %v", err)
	}
	if len(n.Kernel.Resets()) == 0 {
		t.Error("the VM got what the container left: no reset")
	}

	if answer := n.kubelet.Unprepare(vm)["uid-1"]; answer.Error != "" || n.published() != "nvidia" {
		t.Fatalf("unprepared: %v, published on %s", answer, n.published())
	}
	if err := n.vendor.Prepare(t.Context(), container); err != nil {
		t.Errorf("the GPU is not back: %v", err)
	}
}

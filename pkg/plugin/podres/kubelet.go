package podres

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
)

const (
	// maxAnswer is the limit of the kubelet's own client: List grows with the pods.
	maxAnswer = 16 << 20
	// callPolicy waits for a kubelet that is starting, and retries when the kubelet's rate limit (100
	// calls a second, bursts of 10, for all callers together) is exceeded, until the caller's deadline.
	callPolicy = `{"methodConfig": [{
		"name": [{"service": "v1.PodResourcesLister"}],
		"waitForReady": true,
		"retryPolicy": {
			"maxAttempts": 5, "initialBackoff": "0.02s", "maxBackoff": "0.2s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]
		}
	}]}`
)

// DialKubelet returns a client of the kubelet's socket, and its closer. The client connects at the first
// call. It reconnects after a restart of the kubelet, with several attempts during one Get.
func DialKubelet(socket string) (podresourcesv1.PodResourcesListerClient, io.Closer, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(callPolicy),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, nil, fmt.Errorf("client of the kubelet's pod resources: %w", err)
	}
	return podresourcesv1.NewPodResourcesListerClient(conn), conn, nil
}

// askKubelet returns the kubelet's answer for a pod, never nil without an error. It fails if the kubelet
// is absent or slow, or does not know the pod.
func (s *Server) askKubelet(ctx context.Context, pod podName) (*podresourcesv1.PodResources, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.KubeletLimit)
	defer cancel()
	req := &podresourcesv1.GetPodResourcesRequest{PodName: pod.name, PodNamespace: pod.namespace}
	answer, err := s.cfg.Kubelet.Get(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet: %w", err)
	}
	if answer.GetPodResources() == nil {
		return &podresourcesv1.PodResources{}, nil
	}
	return answer.GetPodResources(), nil
}

// containerName is the entry that holds our devices. Kata plugs the devices of all entries into the VM.
// CDI decides at the creation of a container which devices it sees.
const containerName = "kata-vfio"

// merge returns kata-vfio's devices and the rest of the kubelet's answer, which it modifies. It removes kata-vfio's DRA entries from the
// answer, so that a shim that reads DRA entries gets each device only once. It also removes entries that are no CDI names, because a shim
// fails the sandbox for them.
func (s *Server) merge(
	pod podName, own []*Assignment, kubelet *podresourcesv1.PodResources,
) *podresourcesv1.PodResources {
	if kubelet == nil {
		kubelet = &podresourcesv1.PodResources{}
	}
	for _, c := range kubelet.GetContainers() {
		c.Devices = slices.DeleteFunc(c.GetDevices(), oursByResource)
		c.DynamicResources = foreignResources(c.GetDynamicResources())
	}
	s.dropUnresolved(kubelet)
	kubelet.Name, kubelet.Namespace = pod.name, pod.namespace
	if plugged := ownContainer(own); len(plugged.GetDevices()) > 0 {
		kubelet.Containers = slices.Insert(kubelet.GetContainers(), 0, plugged)
	}
	return kubelet
}

func ownContainer(own []*Assignment) *podresourcesv1.ContainerResources {
	c := &podresourcesv1.ContainerResources{Name: containerName}
	for _, a := range own {
		for _, d := range a.Devices {
			if d.Endpoint {
				continue // Kata finds it in the network namespace, and would plug it twice
			}
			c.Devices = append(c.Devices, &podresourcesv1.ContainerDevices{
				ResourceName: cdi.Kind, DeviceIds: []string{cdi.DeviceName(a.Claim.UID, d.Name)},
			})
		}
	}
	return c
}

// oursByResource reports whether a device plugin's entry has our name.
func oursByResource(d *podresourcesv1.ContainerDevices) bool { return d.GetResourceName() == cdi.Kind }

// foreignResources removes our devices from claims, and claims without other devices. A device of another
// driver keeps only its own CDI names.
func foreignResources(resources []*podresourcesv1.DynamicResource) []*podresourcesv1.DynamicResource {
	return slices.DeleteFunc(resources, func(r *podresourcesv1.DynamicResource) bool {
		had := len(r.GetClaimResources())
		r.ClaimResources = slices.DeleteFunc(r.GetClaimResources(), ours)
		for _, c := range r.GetClaimResources() {
			c.CdiDevices = slices.DeleteFunc(c.GetCdiDevices(), oursByCDI)
		}
		return had > 0 && len(r.GetClaimResources()) == 0
	})
}

// dropUnresolved drops the device plugins' entries that the node's CDI specs do not resolve. It reads the
// specs only if there is an entry.
func (s *Server) dropUnresolved(pod *podresourcesv1.PodResources) {
	var names []string
	for _, c := range pod.GetContainers() {
		for _, d := range c.GetDevices() {
			for _, id := range d.GetDeviceIds() {
				names = append(names, cdiName(d, id))
			}
		}
	}
	if len(names) == 0 {
		return
	}
	known := s.cfg.Resolver.Resolve(names)
	for _, c := range pod.GetContainers() {
		c.Devices = slices.DeleteFunc(c.GetDevices(), func(d *podresourcesv1.ContainerDevices) bool {
			d.DeviceIds = slices.DeleteFunc(d.GetDeviceIds(), func(id string) bool { return !known[cdiName(d, id)] })
			return len(d.GetDeviceIds()) == 0
		})
	}
}

// cdiName returns the CDI name of an entry, as Kata makes it.
func cdiName(d *podresourcesv1.ContainerDevices, id string) string {
	return d.GetResourceName() + "=" + id
}

// namedClaim is a pod's claim with kata-vfio's devices, as the kubelet names it.
type namedClaim struct {
	namespace, name string
	// cdi are the CDI names of its devices; they hold the claim's UID.
	cdi []string
	// devices are the claim's devices of kata-vfio by pool and name, as they were prepared.
	devices []poolDevice
}

// poolDevice is a device as ResourceSlices name it.
type poolDevice struct{ pool, name string }

// is reports whether the assignment belongs to this claim: the name, the UID in the CDI names, and the
// devices with their pools are the same.
func (c *namedClaim) is(a *Assignment) bool {
	return c.namespace == a.Claim.Namespace && c.name == a.Claim.Name &&
		!slices.ContainsFunc(c.cdi, func(name string) bool {
			return !slices.ContainsFunc(a.Devices, func(d Device) bool { return d.CDI == name })
		}) &&
		!slices.ContainsFunc(c.devices, func(named poolDevice) bool {
			return !slices.ContainsFunc(a.Devices, func(d Device) bool { return poolDevice{d.Pool, d.Published} == named })
		})
}

// namedClaims returns the claims with our devices, once for each container that has them.
func namedClaims(pod *podresourcesv1.PodResources) []*namedClaim {
	var claims []*namedClaim
	for _, container := range pod.GetContainers() {
		for _, dynamic := range container.GetDynamicResources() {
			if slices.ContainsFunc(dynamic.GetClaimResources(), ours) {
				claims = append(claims, &namedClaim{
					namespace: dynamic.GetClaimNamespace(), name: dynamic.GetClaimName(), cdi: cdiNames(dynamic), devices: devicesNamed(dynamic),
				})
			}
		}
	}
	return claims
}

// cdiNames returns the CDI names of our devices, some more than once: the kubelet (up to 1.37) repeats
// the names of all earlier devices of a claim. Names of metadata mounts ("kata-vfio.dev/metadata=") are
// of another kind.
func cdiNames(dynamic *podresourcesv1.DynamicResource) []string {
	var names []string
	for _, resource := range dynamic.GetClaimResources() {
		for _, device := range resource.GetCdiDevices() {
			if oursByCDI(device) {
				names = append(names, device.GetName())
			}
		}
	}
	return names
}

// devicesNamed returns our devices by pool and name.
func devicesNamed(dynamic *podresourcesv1.DynamicResource) []poolDevice {
	var devices []poolDevice
	for _, r := range dynamic.GetClaimResources() {
		if ours(r) {
			devices = append(devices, poolDevice{r.GetPoolName(), r.GetDeviceName()})
		}
	}
	return devices
}

// ours reports whether a claim's device is our driver's.
func ours(r *podresourcesv1.ClaimResource) bool { return r.GetDriverName() == v1alpha1.DriverName }

// oursByCDI reports whether a CDI name has the kind of kata-vfio's devices.
func oursByCDI(d *podresourcesv1.CDIDevice) bool { return strings.HasPrefix(d.GetName(), cdi.Kind+"=") }

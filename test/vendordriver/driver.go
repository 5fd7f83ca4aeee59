// Package vendordriver is a stand-in for the DRA driver of a GPU's vendor, gpu.example.com. It publishes the GPUs of one node
// for containers, prepares claims, and says which claims use a GPU at the moment. Tests share its GPUs with kata-vfio.
//
// Like the drivers that it stands for, it knows nothing of kata-vfio: it neither reads its taints nor its devices. [Faults] make
// it behave worse. It works with a real API server and with client-go's fake.
package vendordriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Name is the driver's name.
const Name = "gpu.example.com"

// GPU is a physical GPU of the node.
type GPU struct {
	Address pci.Address
	// Partitions is the number of devices that the GPU is published as, like MIG instances; 0 is the whole GPU as one.
	Partitions int
}

// Config says for which node a driver stands in.
type Config struct {
	Client kubernetes.Interface
	// Node is the node's name, and that of the driver's pool.
	Node string
	GPUs []GPU
	// KernelDriver returns the kernel driver that a function is bound to. A GPU on a VFIO driver can't be prepared. If
	// KernelDriver is nil, every GPU can be.
	KernelDriver func(pci.Address) string
	// Rediscovers says that the driver publishes a GPU only while it is not on a VFIO driver. Others publish what they found
	// at their start, whatever becomes of it.
	Rediscovers bool
}

// Driver is one node's stand-in. It is safe for concurrent use.
type Driver struct {
	Config

	mu         sync.Mutex // guards the fields below
	faults     Faults
	released   chan struct{} // is closed when a slow driver may go on
	generation int64
	// used has the devices of prepared claims.
	used map[types.UID]use
	seen *view
}

// use is a prepared claim.
type use struct {
	namespace, name string
	devices         []string
}

// New returns a driver. Nothing is published before [Driver.Publish].
func New(c Config) *Driver {
	return &Driver{Config: c, used: map[types.UID]use{}, released: make(chan struct{})}
}

// Device returns the name of a GPU's device. partition is the number of the GPU's partition, counted from 0.
func Device(a pci.Address, partition int) string {
	return fmt.Sprintf("card-%s-%d", a.Label(), partition)
}

// Publish writes the node's slice as it should be now.
func (d *Driver) Publish(ctx context.Context) error {
	if err := d.answers(ctx); err != nil {
		return err
	}
	client := d.Client.ResourceV1().ResourceSlices()
	d.mu.Lock()
	d.generation++
	want := d.slice()
	d.mu.Unlock()
	// A node may get a slice only once there is one.
	_, err := client.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = d.replace(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("publish the GPUs of %s: %w", d.Node, err)
	}
	return nil
}

// replace writes the node's slice again, as the next generation of its pool.
func (d *Driver) replace(ctx context.Context, want *resourceapi.ResourceSlice) error {
	client := d.Client.ResourceV1().ResourceSlices()
	is, err := client.Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want.ResourceVersion = is.ResourceVersion
	want.Spec.Pool.Generation = is.Spec.Pool.Generation + 1
	_, err = client.Update(ctx, want, metav1.UpdateOptions{})
	return err
}

// Withdraw deletes the node's slice, as when the driver is removed from the node. It may be repeated.
func (d *Driver) Withdraw(ctx context.Context) error {
	err := d.Client.ResourceV1().ResourceSlices().Delete(ctx, d.sliceName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("withdraw the GPUs of %s: %w", d.Node, err)
	}
	return nil
}

func (d *Driver) sliceName() string { return d.Node + "-" + Name }

// slice returns the node's slice. d.mu is held.
func (d *Driver) slice() *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: d.sliceName()},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: Name, NodeName: &d.Node, Pool: resourceapi.ResourcePool{Name: d.Node, Generation: d.generation, ResourceSliceCount: 1},
		},
	}
	for _, g := range d.GPUs {
		if d.Rediscovers && d.isTaken(g.Address) {
			continue
		}
		for i := range max(g.Partitions, 1) {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{
				Name: Device(g.Address, i),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"type": {StringValue: new("gpu")},
					deviceattribute.StandardDeviceAttributePCIBusID: {StringValue: new(g.Address.String())},
				},
			})
		}
	}
	return slice
}

// isTaken reports whether a function is on a VFIO driver.
func (d *Driver) isTaken(a pci.Address) bool {
	return d.KernelDriver != nil && device.IsVFIO(d.KernelDriver(a))
}

// gpuOf returns the GPU of a device.
func (d *Driver) gpuOf(name string) (pci.Address, bool) {
	for _, g := range d.GPUs {
		for i := range max(g.Partitions, 1) {
			if Device(g.Address, i) == name {
				return g.Address, true
			}
		}
	}
	return pci.Address{}, false
}

// ErrNotAllocated says that a claim has no device of the driver on its node.
var ErrNotAllocated = errors.New("no device of " + Name + " on this node is allocated to the claim")

// Prepare lets the pods of an allocated claim use its devices. It may be repeated. It fails if a GPU is on a VFIO driver.
func (d *Driver) Prepare(ctx context.Context, c *resourceapi.ResourceClaim) error {
	if err := d.answers(ctx); err != nil {
		return err
	}
	names := d.allocated(c)
	if len(names) == 0 {
		return fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, ErrNotAllocated)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		a, ok := d.gpuOf(name)
		if !ok {
			return fmt.Errorf("claim %s/%s: there is no device %s", c.Namespace, c.Name, name)
		}
		if d.isTaken(a) {
			return fmt.Errorf("claim %s/%s: GPU %s is on %s", c.Namespace, c.Name, a, d.KernelDriver(a))
		}
	}
	d.used[c.UID] = use{c.Namespace, c.Name, names}
	return nil
}

// Unprepare ends the use of a claim's devices. It may be repeated.
func (d *Driver) Unprepare(ctx context.Context, uid types.UID) error {
	if err := d.answers(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.used, uid)
	return nil
}

// allocated returns the claim's devices of this node.
func (d *Driver) allocated(c *resourceapi.ResourceClaim) []string {
	if c.Status.Allocation == nil {
		return nil
	}
	var names []string
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == Name && r.Pool == d.Node {
			names = append(names, r.Device)
		}
	}
	return names
}

// Users returns the prepared claims that use a GPU, sorted.
func (d *Driver) Users(a pci.Address) []types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []types.UID
	for uid, u := range d.used {
		if slices.ContainsFunc(u.devices, func(name string) bool { of, _ := d.gpuOf(name); return of == a }) {
			all = append(all, uid)
		}
	}
	slices.Sort(all)
	return all
}

// List answers as the kubelet's pod-resources List would: a pod for each prepared claim, of the claim's name.
func (d *Driver) List() *podresourcesv1.ListPodResourcesResponse {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := &podresourcesv1.ListPodResourcesResponse{}
	for _, uid := range slices.Sorted(maps.Keys(d.used)) {
		u := d.used[uid]
		dynamic := &podresourcesv1.DynamicResource{ClaimNamespace: u.namespace, ClaimName: u.name}
		for _, name := range u.devices {
			dynamic.ClaimResources = append(dynamic.ClaimResources, &podresourcesv1.ClaimResource{DriverName: Name, PoolName: d.Node, DeviceName: name})
		}
		answer.PodResources = append(answer.PodResources, &podresourcesv1.PodResources{
			Namespace: u.namespace, Name: u.name,
			Containers: []*podresourcesv1.ContainerResources{{Name: "main", DynamicResources: []*podresourcesv1.DynamicResource{dynamic}}},
		})
	}
	return answer
}

package utilization

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// PerNode is the number of a node's GPUs.
const PerNode = fleet.Rails

// gpus is a set of a node's GPUs, a bit for each in the order of their names.
type gpus uint8

func (g gpus) count() int { return bits.OnesCount8(uint8(g)) }

// Allocator says which GPUs of a node a job gets, for each state of a node and each number of GPUs. That is what the scheduler's
// allocator (k8s.io/dynamic-resource-allocation) answers with a node's ResourceSlices: all nodes publish the same.
type Allocator struct {
	answers [1 << PerNode][PerNode + 1]gpus
}

// NewAllocator asks the scheduler's allocator for all its answers.
func NewAllocator(ctx context.Context) (*Allocator, error) {
	a, s := &Allocator{}, newScheduler()
	for taken := range a.answers {
		for count := 1; count <= PerNode; count++ {
			got, err := s.ask(ctx, s.slices, fleet.Name(0), s.allocated(fleet.Name(0), gpus(taken)), count)
			if err != nil {
				return nil, err
			}
			a.answers[taken][count] = got
		}
	}
	return a, nil
}

// allocate returns the GPUs that a claim for count of them gets on a node; 0 where it doesn't fit.
func (a *Allocator) allocate(taken gpus, count int) gpus { return a.answers[taken][count] }

// Slices returns the ResourceSlices of the i-th node.
func Slices(i int) []*resourceapi.ResourceSlice {
	first := fleet.Name(0)
	return fleet.Slices(publish.Pools(fleet.Node(first, 0, nil)), first, fleet.Name(i))
}

// scheduler asks the scheduler's allocator.
type scheduler struct {
	slices []*resourceapi.ResourceSlice // of the first node
	names  []string                     // of a node's GPUs
	cache  *cel.Cache
}

func newScheduler() *scheduler {
	s := &scheduler{slices: Slices(0), cache: cel.NewCache(10, cel.Features{})}
	for _, slice := range s.slices {
		for i := range slice.Spec.Devices {
			if kind := slice.Spec.Devices[i].Attributes[publish.AttrType].StringValue; kind != nil && *kind == "gpu" {
				s.names = append(s.names, slice.Spec.Devices[i].Name)
			}
		}
	}
	slices.Sort(s.names)
	return s
}

// allocated names the GPUs for the scheduler.
func (s *scheduler) allocated(node string, taken gpus) sets.Set[structured.DeviceID] {
	ids := sets.New[structured.DeviceID]()
	for i, name := range s.names {
		if taken&(1<<i) != 0 {
			ids.Insert(structured.MakeDeviceID(v1alpha1.DriverName, device.NodePool(node), name))
		}
	}
	return ids
}

// ask has the scheduler's allocator, with the gates of 1.36 and 1.37 that are on by default, allocate a claim on a node.
func (s *scheduler) ask(
	ctx context.Context, all []*resourceapi.ResourceSlice, node string, allocated sets.Set[structured.DeviceID], count int,
) (gpus, error) {
	state := structured.AllocatedState{
		AllocatedDevices: allocated, AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	features := structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
		ConsumableCapacity: true, DeviceBindingAndStatus: true,
	}
	allocator, err := structured.NewAllocator(ctx, features, state, classes{}, all, s.cache)
	if err != nil {
		return 0, fmt.Errorf("make the scheduler's allocator: %w", err)
	}
	results, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{Claim(count)})
	if err != nil {
		return 0, fmt.Errorf("allocate %d GPUs: %w", count, err)
	}
	var got gpus
	for _, r := range results {
		for _, d := range r.Devices.Results {
			i := slices.Index(s.names, d.Device)
			if i < 0 {
				return 0, fmt.Errorf("allocate %d GPUs: got %s, which is none", count, d.Device)
			}
			got |= 1 << i
		}
	}
	return got, nil
}

// Claim returns a claim for some GPUs of a node.
func Claim(count int) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "uid"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: gpuClass, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(count),
			},
		}}}},
	}
}

const gpuClass = "gpu." + v1alpha1.DriverName

// Class returns the DeviceClass of GPUs.
func Class() *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: gpuClass},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
			`device.driver == %q && device.attributes[%[1]q].?type.orValue("") == "gpu"`, v1alpha1.DriverName)}}}},
	}
}

// classes has the one DeviceClass.
type classes struct{}

func (classes) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{Class()}, nil
}

func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != gpuClass {
		return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
	}
	return Class(), nil
}

package vendordriver_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/vendordriver"
)

var first, second = pci.Address{Bus: 0x3b}, pci.Address{Bus: 0x3c}

// newDriver returns the driver of worker-1, which has published a whole GPU and one in two parts.
func newDriver(t *testing.T, c vendordriver.Config, objects ...runtime.Object) *vendordriver.Driver {
	t.Helper()
	c.Client, c.Node = fake.NewClientset(objects...), "worker-1"
	c.GPUs = []vendordriver.GPU{{Address: first}, {Address: second, Partitions: 2}}
	d := vendordriver.New(c)
	if err := d.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func newClaim(name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: name, UID: types.UID(name)}}
}

func tainted(device string) *resourceapi.DeviceTaintRule {
	driver := vendordriver.Name
	return &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule-" + device}, Spec: resourceapi.DeviceTaintRuleSpec{
		DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &driver, Device: &device},
		Taint:          resourceapi.DeviceTaint{Key: "example.com/in-use", Effect: resourceapi.DeviceTaintEffectNoSchedule},
	}}
}

// published returns the devices in the driver's slice with their addresses.
func published(t *testing.T, d *vendordriver.Driver) map[string]string {
	t.Helper()
	slice, err := d.Client.ResourceV1().ResourceSlices().Get(t.Context(), "worker-1-gpu.example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, dev := range slice.Spec.Devices {
		all[dev.Name] = *dev.Attributes["resource.kubernetes.io/pciBusID"].StringValue
	}
	return all
}

// allocate allocates a device to a new claim and returns it, and the device's name.
func allocate(t *testing.T, d *vendordriver.Driver, name string) (*resourceapi.ResourceClaim, string, error) {
	t.Helper()
	c, err := d.Client.ResourceV1().ResourceClaims("team-b").Create(t.Context(), newClaim(name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err = d.Allocate(t.Context(), c, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: "pod"})
	if err != nil {
		return nil, "", err
	}
	return c, c.Status.Allocation.Devices.Results[0].Device, nil
}

func TestPublishes(t *testing.T) {
	on := map[pci.Address]string{}
	kernel := func(a pci.Address) string { return on[a] }
	for name, test := range map[string]struct {
		rediscovers bool
		want        int // devices while the second GPU is in a VM
	}{
		"what it found at its start": {want: 3},
		"what is there":              {rediscovers: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			clear(on)
			d := newDriver(t, vendordriver.Config{KernelDriver: kernel, Rediscovers: test.rediscovers})
			all := map[string]string{"card-0000-3b-00-0-0": "0000:3b:00.0", "card-0000-3c-00-0-0": "0000:3c:00.0", "card-0000-3c-00-0-1": "0000:3c:00.0"}
			if diff := cmp.Diff(all, published(t, d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			on[second] = "vfio-pci"
			if err := d.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := published(t, d); len(got) != test.want {
				t.Errorf("published %v, want %d devices", got, test.want)
			}
			for range 2 {
				if err := d.Withdraw(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAllocation: the first free device without a taint, unless a fault says otherwise.
func TestAllocation(t *testing.T) {
	const firstDevice = "card-0000-3b-00-0-0"
	for name, test := range map[string]struct {
		faults vendordriver.Faults
		want   []string
	}{
		"by its rules":                    {want: []string{"card-0000-3c-00-0-0", "card-0000-3c-00-0-1"}},
		"whatever is tainted":             {faults: vendordriver.Faults{IgnoresTaints: true}, want: []string{firstDevice, "card-0000-3c-00-0-0"}},
		"by what it saw before the taint": {faults: vendordriver.Faults{Late: true}, want: []string{firstDevice, firstDevice}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, vendordriver.Config{})
			if err := d.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Client.ResourceV1().DeviceTaintRules().Create(t.Context(), tainted(firstDevice), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			d.Set(test.faults)
			var got []string
			for _, claim := range []string{"a", "b"} {
				_, device, err := allocate(t, d, claim)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, device)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if test.faults != (vendordriver.Faults{}) {
				return
			}
			if _, _, err := allocate(t, d, "c"); !errors.Is(err, vendordriver.ErrNoDevice) {
				t.Errorf("all are tainted or allocated: %v", err)
			}
		})
	}
}

// TestPreparation: a GPU has users between Prepare and Unprepare, which the kubelet lists, and none while it is on VFIO.
func TestPreparation(t *testing.T) {
	driver := "example"
	d := newDriver(t, vendordriver.Config{KernelDriver: func(pci.Address) string { return driver }})
	c, device, err := allocate(t, d, "a")
	if err != nil {
		t.Fatal(err)
	}
	driver = "vfio-pci"
	if err := d.Prepare(t.Context(), c); err == nil || len(d.Users(first)) > 0 || len(d.List().PodResources) > 0 {
		t.Errorf("prepared a GPU on vfio-pci: %v", err)
	}
	driver = "example"
	for range 2 {
		if err := d.Prepare(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(d.Users(first), []types.UID{"a"}) || len(d.Users(second)) > 0 {
		t.Errorf("users %v and %v", d.Users(first), d.Users(second))
	}
	listed := d.List().PodResources[0].Containers[0].DynamicResources[0].ClaimResources[0]
	if listed.DriverName != vendordriver.Name || listed.PoolName != "worker-1" || listed.DeviceName != device {
		t.Errorf("listed %v", listed)
	}
	for range 2 {
		if err := d.Unprepare(t.Context(), "a"); err != nil || len(d.Users(first)) > 0 {
			t.Errorf("unprepared: %v, users %v", err, d.Users(first))
		}
	}
	if err := d.Prepare(t.Context(), newClaim("b")); !errors.Is(err, vendordriver.ErrNotAllocated) {
		t.Errorf("not allocated: %v", err)
	}
}

// TestFaultyAnswers: a dead driver fails, and a slow one answers when it is released or the caller gives up.
func TestFaultyAnswers(t *testing.T) {
	d := newDriver(t, vendordriver.Config{})
	c, _, err := allocate(t, d, "a")
	if err != nil {
		t.Fatal(err)
	}
	d.Set(vendordriver.Faults{Dead: true})
	for _, err := range []error{d.Prepare(t.Context(), c), d.Unprepare(t.Context(), "a"), d.Publish(t.Context())} {
		if !errors.Is(err, vendordriver.ErrDead) {
			t.Errorf("dead: %v", err)
		}
	}
	d.Set(vendordriver.Faults{Slow: true})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Prepare(gone, c); !errors.Is(err, context.Canceled) || len(d.Users(first)) > 0 {
		t.Errorf("the caller gave up: %v", err)
	}
	done := make(chan error)
	go func() { done <- d.Prepare(t.Context(), c) }()
	d.Set(vendordriver.Faults{})
	if err := <-done; err != nil || len(d.Users(first)) != 1 {
		t.Errorf("released: %v, users %v", err, d.Users(first))
	}
}

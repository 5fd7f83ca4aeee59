package publish_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// TestSchedulerKeepsHalvesWhole compares our order of the devices with that of Fabric Manager's list, by the scheduler's own code. The claims
// that come, and when they end, are the same, so the number of claims that get no device tells the fragmentation.
func TestSchedulerKeepsHalvesWhole(t *testing.T) {
	arrivals := 10_000
	if testing.Short() {
		arrivals = 400
	}
	ours := resourceSlices(publish.Pools(joined(t)))
	listed := make([]*resourceapi.ResourceSlice, len(ours))
	for i, s := range ours {
		listed[i] = s.DeepCopy()
		slices.SortStableFunc(listed[i].Spec.Devices, func(a, b resourceapi.Device) int { return inList(t, a.Name) - inList(t, b.Name) })
	}
	refused, naively := arrive(t, ours, arrivals), arrive(t, listed, arrivals)
	t.Logf("of %d claims, %d got no device in our order, and %d in the order of Fabric Manager's list", arrivals, refused, naively)
	if naively == 0 || refused > naively {
		t.Errorf("%d claims got no device, want at most the %d of the order of the list, and some", refused, naively)
	}
}

// inList returns the number of a device's partition in Fabric Manager's list.
func inList(t *testing.T, name string) int {
	t.Helper()
	parts, err := device.ParseParts(name)
	if err != nil {
		t.Fatal(err)
	}
	var modules []int
	for _, p := range parts {
		modules = append(modules, 1+slices.Index(fabrictest.Buses(), p.Address.Bus))
	}
	slices.Sort(modules)
	return fabrictest.H100().With(modules).ID
}

// arrive returns how many of the claims got no device.
func arrive(t *testing.T, offered []*resourceapi.ResourceSlice, arrivals int) (refused int) {
	t.Helper()
	type tenant struct {
		has  publish.Allocated
		ends int
	}
	random := rand.New(rand.NewPCG(1, 2))
	cache := cel.NewCache(10, cel.Features{})
	var tenants []tenant
	for now := range arrivals {
		tenants = slices.DeleteFunc(tenants, func(x tenant) bool { return x.ends <= now })
		size, ends := []int{1, 1, 1, 1, 2, 2, 4}[random.IntN(7)], now+1+random.IntN(5)
		var held []publish.Allocated
		for _, x := range tenants {
			held = append(held, x.has)
		}
		got := allocateFrom(t, cache, offered, held, claimForSize(size))
		if len(got) == 0 {
			refused++
			continue
		}
		if strings.HasPrefix(got[0].Name, "gpu-x") != (size > 1) {
			t.Fatalf("a claim for %d GPUs got %s, want a partition: %t", size, got[0].Name, size > 1)
		}
		tenants = append(tenants, tenant{got[0], ends})
	}
	return refused
}

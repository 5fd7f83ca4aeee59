// Package golden has the ResourceSlices of the golden files of package publish, as the plugin creates them at the API server.
package golden

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Driver publishes the slices, and Node is the node that they are of.
const (
	Driver = "kata-vfio.dev"
	Node   = "worker-1"
)

// Slices returns those of a golden file, in the order of their pools.
func Slices(t *testing.T, path string) []*resourceapi.ResourceSlice {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var pools map[string]struct {
		Slices []struct {
			Devices        []resourceapi.Device
			SharedCounters []resourceapi.CounterSet
		}
	}
	if err := json.Unmarshal(text, &pools); err != nil {
		t.Fatal(err)
	}
	var all []*resourceapi.ResourceSlice
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for i, s := range pools[pool].Slices {
			all = append(all, Slice(Driver, pool, i, len(pools[pool].Slices), s.Devices, s.SharedCounters))
		}
	}
	return all
}

// Slice returns the slice with the index i, of a pool with count of them.
func Slice(driver, pool string, i, count int, devices []resourceapi.Device, counters []resourceapi.CounterSet) *resourceapi.ResourceSlice {
	node := Node
	return &resourceapi.ResourceSlice{
		// An object's name has no "/", which names of pools have.
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", driver, strings.ReplaceAll(pool, "/", "-"), i)},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Devices: devices, SharedCounters: counters,
			Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(count)},
		},
	}
}

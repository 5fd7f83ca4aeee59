package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Name returns the name of the i-th node.
func Name(i int) string { return fmt.Sprintf("node-%04d", i) }

// Slices returns the pools of the node "from" as the ResourceSlices of the node "to", as the controller of the kubelet's
// plugin library makes them. Nodes made from the same pools share their devices: don't change them.
func Slices(pools map[string]publish.Pool, from, to string) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		pool := resourceapi.ResourcePool{
			Name: to + strings.TrimPrefix(name, from), Generation: 1, ResourceSliceCount: int64(len(pools[name].Slices)),
		}
		for i, s := range pools[name].Slices {
			all = append(all, &resourceapi.ResourceSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
				// The library has the API server make the end of the name. The index goes first: it is the order of allocation.
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05x-%s-%s-%05d", i, v1alpha1.DriverName, to, len(all))},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: v1alpha1.DriverName, NodeName: &to, Pool: pool, Devices: s.Devices, SharedCounters: s.SharedCounters,
				},
			})
		}
	}
	return all
}

package controller

import (
	"fmt"
	"hash/fnv"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// GPUCountDriver is the DRA driver of the placeholders by which KAI counts GPUs. KAI takes each device of a driver with "gpu"
// in its name for a GPU. It would also count VFs of a driver that has both GPUs and VFs, so the placeholders have a driver of
// their own. No claim gets a placeholder, and no program serves the driver.
const GPUCountDriver = "gpu-count." + v1alpha1.DriverName

const (
	// placeholderTaint keeps claims of any class from the placeholders. KAI counts devices whatever their taints are.
	placeholderTaint = GPUCountDriver + "/placeholder"
	// maxPlaceholders is what the API server takes of devices with taints in one slice (ResourceSliceMaxDevicesWithTaintsOrConsumesCounters).
	maxPlaceholders = 64
)

// countedGPUs returns how many GPUs of a node claims can get, now or after the claims that have them: the GPUs without a taint
// that keeps all claims away, and that no DeviceTaintRule takes out. A GPU that is also published as a pair counts once. A GPU
// that another driver publishes too does not count, because that driver's slices count it. known is false while the slices of a pool are being written.
func countedGPUs(c *cluster.Cluster, node string, ruledOut map[cluster.ID]bool) (n int, known bool) {
	found := map[cluster.Place]bool{}
	for _, p := range c.Pools() {
		if p.Node != node {
			continue
		}
		if p.Unfinished() {
			return 0, false
		}
		for _, d := range p.Devices {
			if isCounted(d) && len(d.Places) > 0 && !keepsAllAway(d) && !ruledOut[d.ID] {
				found[d.Places[0]] = true
			}
		}
	}
	return len(found), true
}

// isCounted reports whether the device is a GPU, or a pair of one with a VF.
func isCounted(d *cluster.Device) bool {
	return (d.Details.Kind == string(device.GPU) || d.Details.Kind == string(device.PairType)) && d.Details.SharedWith == ""
}

// keepsAllAway reports whether a taint keeps the claims of all tenants from the device. The taint of an exclusive domain does
// not: it keeps away only other tenants.
func keepsAllAway(d *cluster.Device) bool {
	return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key != v1alpha1.TaintTenant && cluster.KeepsAway(&t) })
}

// placeholders returns the ResourceSlices that stand for n GPUs of a node, or no slices if n is 0. The node owns them, so that
// they are deleted with it.
func placeholders(node string, n int, owner metav1.OwnerReference) []*resourceapi.ResourceSlice {
	count := (n + maxPlaceholders - 1) / maxPlaceholders
	all := make([]*resourceapi.ResourceSlice, count)
	for i := range all {
		s := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: placeholdersName(node, i), OwnerReferences: []metav1.OwnerReference{owner},
				Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
			},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: GPUCountDriver, NodeName: &node,
				// The generation is the count, so that slices of two counts are never taken together.
				Pool: resourceapi.ResourcePool{Name: node + "/" + GPUCountDriver, Generation: int64(n), ResourceSliceCount: int64(count)},
			},
		}
		for k := i * maxPlaceholders; k < min(n, (i+1)*maxPlaceholders); k++ {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
				Name: fmt.Sprintf("placeholder-%d", k), Taints: []resourceapi.DeviceTaint{{Key: placeholderTaint, Effect: resourceapi.DeviceTaintEffectNoSchedule}},
			})
		}
		all[i] = s
	}
	return all
}

// keepTimes gives the taints of want the times that present has of them. The API server sets the time of a taint that is written
// without one, also in an update: without the times, a slice would never be as it is wanted, and each update of it would cause
// another one.
func keepTimes(want, present *resourceapi.ResourceSliceSpec) {
	times := map[string]*metav1.Time{}
	for i := range present.Devices {
		for _, t := range present.Devices[i].Taints {
			if t.Key == placeholderTaint {
				times[present.Devices[i].Name] = t.TimeAdded
			}
		}
	}
	for i := range want.Devices {
		for k := range want.Devices[i].Taints {
			want.Devices[i].Taints[k].TimeAdded = times[want.Devices[i].Name].DeepCopy()
		}
	}
}

// placeholdersName returns the name of the i-th slice of a node. If the node's name is too long for it, a hash replaces the
// node's name.
func placeholdersName(node string, i int) string {
	full := fmt.Sprintf("%s-%s-%d", node, GPUCountDriver, i)
	if len(full) <= validation.DNS1123SubdomainMaxLength {
		return full
	}
	h := fnv.New64a()
	h.Write([]byte(node)) // never fails
	return fmt.Sprintf("%016x-%s-%d", h.Sum64(), GPUCountDriver, i)
}

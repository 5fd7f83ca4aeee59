package dra

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// poolDevice is a device together with the name of its pool.
type poolDevice struct {
	device resourceapi.Device
	pool   string
}

// devices returns the devices of all pools.
func devices(pools map[string]publish.Pool) []poolDevice {
	var all []poolDevice
	for name, pool := range pools {
		for _, slice := range pool.Slices {
			for _, d := range slice.Devices {
				all = append(all, poolDevice{d, name})
			}
		}
	}
	return all
}

// resources wraps pools for the helper.
func resources(pools map[string]publish.Pool) resourceslice.DriverResources {
	out := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	for name, pool := range pools {
		// The helper counts the pool's generation itself.
		var wrapped resourceslice.Pool
		for _, s := range pool.Slices {
			wrapped.Slices = append(wrapped.Slices, resourceslice.Slice{Devices: s.Devices, SharedCounters: s.SharedCounters})
		}
		out.Pools[name] = wrapped
	}
	return out
}

// ailments returns the taints that make a device unhealthy. A drained device stays healthy, like a cordoned node: the claim that has it
// keeps it. The same holds for a device that must be sanitized after its claim, for a device in an exclusive domain of a tenant, and for a
// device that is only withdrawn because it gets another name or pool.
func ailments(d *resourceapi.Device) []resourceapi.DeviceTaint {
	return slices.DeleteFunc(slices.Clone(d.Taints), func(t resourceapi.DeviceTaint) bool {
		switch t.Key {
		case publish.TaintDrain, v1alpha1.TaintSanitizing, v1alpha1.TaintTenant:
			return true
		}
		return t.Key == publish.TaintWithdrawn && t.Value == string(rule.Renamed)
	})
}

// newHealth returns the devices' health for the kubelet. A device is unhealthy if it has a taint that [ailments] returns.
func newHealth(pools map[string]publish.Pool) []kubeletplugin.DeviceHealth {
	var all []kubeletplugin.DeviceHealth
	for _, d := range devices(pools) {
		h := kubeletplugin.DeviceHealth{PoolName: d.pool, DeviceName: d.device.Name, Health: kubeletplugin.HealthStatusHealthy}
		if why := ailments(&d.device); len(why) > 0 {
			h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, taintWords(why)
		}
		all = append(all, h)
	}
	return all
}

// taintWords lists taints for people: "quarantined, not-isolated (NoReset)".
func taintWords(taints []resourceapi.DeviceTaint) string {
	words := make([]string, len(taints))
	for i, t := range taints {
		words[i] = strings.TrimPrefix(t.Key, v1alpha1.DriverName+"/")
		if t.Value != "" {
			words[i] += " (" + t.Value + ")"
		}
	}
	return strings.Join(words, ", ")
}

// counted returns the devices of all pools by type and health.
func counted(pools map[string]publish.Pool) []metrics.Device {
	var all []metrics.Device
	for _, d := range devices(pools) {
		parts, err := device.ParseParts(d.device.Name)
		if err != nil {
			continue
		}
		all = append(all, metrics.Device{Type: device.PartsType(parts), Healthy: len(ailments(&d.device)) == 0})
	}
	return all
}

// gpus returns the published GPUs by address. claimed are the devices that claims have. A GPU may be in several devices: by itself, with a
// VF, and with other GPUs. It counts as claimed if one of these devices is claimed, and as tainted if all of them are tainted.
func gpus(pools map[string]publish.Pool, claimed []publish.Allocated) map[pci.Address]metrics.GPU {
	all := map[pci.Address]metrics.GPU{}
	for _, d := range devices(pools) {
		parts, err := device.ParseParts(d.device.Name)
		if err != nil {
			continue
		}
		for _, part := range parts {
			if part.Type != device.GPU {
				continue
			}
			g, seen := all[part.Address]
			g.Model = model(&d.device)
			g.Claimed = g.Claimed || slices.Contains(claimed, publish.Allocated{Pool: d.pool, Name: d.device.Name})
			g.Tainted = len(d.device.Taints) > 0 && (g.Tainted || !seen)
			all[part.Address] = g
		}
	}
	return all
}

// model returns the device's model, or else its vendor and device ID.
func model(d *resourceapi.Device) string {
	text := func(name resourceapi.QualifiedName) string {
		if a := d.Attributes[name].StringValue; a != nil {
			return *a
		}
		return ""
	}
	return cmp.Or(text(publish.AttrModel), text(publish.AttrVendor)+":"+text(publish.AttrDevice))
}

package dra

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// device returns a prepared device for the kubelet from its parts: one function, or the two of a pair.
func (d *Plugin) device(p *plan.Plan, parts []plan.Device) kubeletplugin.Device {
	first := &parts[0]
	out := kubeletplugin.Device{Requests: []string{first.Request}, PoolName: first.Pool, DeviceName: first.Published()}
	if attrs := d.config.Publisher.Attributes(first.Published()); attrs != nil {
		out.Metadata = &kubeletplugin.DeviceMetadata{Attributes: metadata(attrs)}
	}
	for i := range parts {
		out.CDIDeviceIDs = append(out.CDIDeviceIDs, cdi.QualifiedName(p.Claim.UID, parts[i].Name))
		addNetwork(&out, p, &parts[i])
		addSanitized(&out, &parts[i])
	}
	return out
}

// attrSanitized is an attribute for the guest, of a device that was sanitized before the claim. It is not published in slices: a taint
// tells the scheduler which devices are not sanitized.
const attrSanitized = v1alpha1.DriverName + "/sanitized"

// addSanitized adds to the metadata for the guest how the device was sanitized.
func addSanitized(out *kubeletplugin.Device, dev *plan.Device) {
	if dev.Sanitized == nil || out.Metadata == nil || out.Metadata.Attributes == nil {
		return
	}
	out.Metadata.Attributes[attrSanitized] = resourceapi.DeviceAttribute{StringValue: new(dev.Sanitized.String())}
}

// addNetwork adds a VF's network to the metadata for the guest.
func addNetwork(out *kubeletplugin.Device, p *plan.Plan, dev *plan.Device) {
	network, told := networkData(p, dev), guestMetadata(p, dev)
	if network == nil && len(told) == 0 {
		return
	}
	if out.Metadata == nil {
		out.Metadata = &kubeletplugin.DeviceMetadata{}
	}
	out.Metadata.NetworkData = network
	// The metadata has no attributes yet if the device is not in the latest Publish.
	if out.Metadata.Attributes == nil && len(told) > 0 {
		out.Metadata.Attributes = map[string]resourceapi.DeviceAttribute{}
	}
	for name, text := range told {
		out.Metadata.Attributes[name] = resourceapi.DeviceAttribute{StringValue: &text}
	}
}

// metadata converts attribute names to the metadata file's plain strings.
func metadata(attrs map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) map[string]resourceapi.DeviceAttribute {
	out := make(map[string]resourceapi.DeviceAttribute, len(attrs))
	for name, value := range attrs {
		out[string(name)] = value
	}
	return out
}

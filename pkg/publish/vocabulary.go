package publish

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// Kind is the type of an attribute's value, named after the field of a DeviceAttribute that holds the value.
type Kind string

// The kinds of the attributes that are published.
const (
	Text    Kind = "string"
	Number  Kind = "int"
	Flag    Kind = "bool"
	Version Kind = "version"
)

// Attributes returns all attributes that the driver publishes, each with the kind of its values. A selector that meets a value of another
// kind fails, and an error on one device stops the scheduling of the pod on all nodes. So the chart's policy slices refuses any other
// attribute of the driver's devices, and check K8S-030 names a node that has one.
func Attributes() map[resourceapi.QualifiedName]Kind {
	return map[resourceapi.QualifiedName]Kind{
		AttrPCIeRoot: Text, AttrPCIBusID: Text, AttrNUMANode: Number,
		AttrType: Text, AttrVendor: Text, AttrDevice: Text, AttrModel: Text, AttrVendorName: Text, AttrRule: Text,
		AttrPFInterface: Text, AttrPortSpeed: Number, AttrMemorySource: Text, AttrBoundary: Text, AttrProfile: Text, AttrCard: Text, AttrDriver: Text, AttrIOMMUGroup: Number,
		AttrIsolated: Flag, AttrIOMMUBackend: Text, AttrReset: Text, AttrPCIeSwitch: Text, AttrVF: Text, AttrPF: Text,
		AttrVFIndex: Number, AttrLinkSpeed: Number, AttrRDMA: Flag, AttrAuditSeverity: Text, AttrAuditFailed: Text,
		AttrSharedWith: Text, AttrExclusiveDomains: Text, AttrPluginVersion: Version, AttrKataVersion: Version,
		AttrFabricSize: Number, AttrFabricLinks: Number, AttrFabricVersion: Text,
	}
}

// MaxDevices is how many devices a slice has at most.
const MaxDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// bars is how many base address registers a function has.
const bars = 6

// Capacities returns the names of all capacities that the driver publishes.
func Capacities() []resourceapi.QualifiedName {
	all := []resourceapi.QualifiedName{CapacityMemory, CapacityGPUs}
	for i := range bars {
		all = append(all, capacityOfBAR(i))
	}
	return all
}

func capacityOfBAR(index int) resourceapi.QualifiedName {
	return resourceapi.QualifiedName(fmt.Sprintf("bar%d", index))
}

// Misfits returns the names of those attributes and capacities of a device that the driver does not publish, or publishes with a value of
// another kind, in order.
func Misfits(d *resourceapi.Device) []string {
	kinds, capacities := Attributes(), Capacities()
	var all []string
	for name, a := range d.Attributes {
		if kind, known := kinds[name]; !known || !kind.has(a) {
			all = append(all, string(name))
		}
	}
	for name := range d.Capacity {
		if !slices.Contains(capacities, name) {
			all = append(all, string(name))
		}
	}
	slices.Sort(all)
	return all
}

// has reports whether a value is of the kind.
func (k Kind) has(a resourceapi.DeviceAttribute) bool {
	switch k {
	case Text:
		return a.StringValue != nil
	case Number:
		return a.IntValue != nil
	case Flag:
		return a.BoolValue != nil
	case Version:
		return a.VersionValue != nil
	}
	return false
}

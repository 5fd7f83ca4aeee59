package cluster

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// ID names a device as ResourceSlices and allocation results do.
type ID struct {
	// Driver is the DRA driver.
	Driver, Pool, Name string
}

// String returns driver/pool/name. A pool name may contain slashes.
func (d ID) String() string { return d.Driver + "/" + d.Pool + "/" + d.Name }

// IsOurs reports whether the device is one of kata-vfio.
func (d ID) IsOurs() bool { return d.Driver == v1alpha1.DriverName }

// Node returns the node of a device of ours: the names of its pools begin with it.
func (d ID) Node() string {
	node, _, _ := strings.Cut(d.Pool, "/")
	return node
}

// Compare orders by driver, pool and name.
func (d ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(d.Driver, o.Driver), cmp.Compare(d.Pool, o.Pool), cmp.Compare(d.Name, o.Name))
}

// Place is where a PCI function is.
type Place struct {
	Node    string
	Address pci.Address
}

// String returns "<node>/<address>", the form of the annotation [v1alpha1.AnnotationTwinPCI].
func (p Place) String() string { return p.Node + "/" + p.Address.String() }

// ParsePlace reads "<node>/<address>".
func ParsePlace(text string) (Place, bool) {
	node, label, ok := strings.Cut(text, "/")
	addr, err := pci.ParseAddress(label)
	return Place{node, addr}, ok && node != "" && err == nil
}

// Compare orders by node and address.
func (p Place) Compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Node, o.Node), p.Address.Compare(o.Address))
}

// Device is one device of a ResourceSlice.
type Device struct {
	ID ID
	// Node is empty for a device that several nodes can reach.
	Node string
	// Slice is the ResourceSlice's name, and Generation its pool's. While a pool is rewritten it has slices of two generations.
	Slice      string
	Generation int64
	// Places are the places of the device's PCI functions: of a pair the GPU's first, of a partition those of all its GPUs. It is empty for
	// a device without an address or a node.
	Places []Place
	Taints []resourceapi.DeviceTaint
	// Skips are the calls to the driver that the kubelet must skip according to the slice.
	Skips []resourceapi.SkipNodeOperation
	// Details are what kata-vfio publishes of its device; nil for another driver's.
	Details *Details
}

// IsOurs reports whether kata-vfio publishes the device.
func (d *Device) IsOurs() bool { return d.Details != nil }

// Details are what kata-vfio publishes of a device.
type Details struct {
	Attributes
	// SharedWith is the other DRA driver that publishes the GPU; empty if there is none.
	SharedWith string
	// Isolated is the node's verdict; nil if there is none.
	Isolated *bool
	// Failed are the checks of the audit that fail, the worst first.
	Failed   []string
	Severity rule.Severity
	// Domains are the exclusive domains around it, by isolation.ExclusiveDomain.Key.
	Domains []string
	// Misfits are the attributes and capacities that the driver does not publish, or publishes with another type.
	Misfits []string

	consumes []resourceapi.DeviceCounterConsumption
}

// Attributes are the attributes by which claims select devices, or that people look at. The JSON form is stable: names are added, never
// changed. Attributes that the node does not publish are left out.
type Attributes struct {
	// Address is the function's, of a pair the GPU's; VF is a pair's second.
	Address string `json:"address,omitempty"`
	VF      string `json:"vf,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Model   string `json:"model,omitempty"`
	Driver  string `json:"driver,omitempty"`
	Root    string `json:"pcieRoot,omitempty"`
	// Switch is the lowest switch above the device; where there is none, what is
	// closest to the root complex on the way to it.
	Switch  string `json:"pcieSwitch,omitempty"`
	PF      string `json:"pf,omitempty"`
	VFIndex *int64 `json:"vfIndex,omitempty"`
	NUMA    *int64 `json:"numaNode,omitempty"`
	Group   *int64 `json:"iommuGroup,omitempty"`
	Reset   string `json:"reset,omitempty"`
	// LinkSpeed is the highest speed per lane of the PCIe link in MT/s.
	LinkSpeed *int64 `json:"linkSpeed,omitempty"`
	// Interface is the PF's on the node, PortSpeed its port's in Mbit/s. RDMA says that the PF has an RDMA device.
	Interface string `json:"interface,omitempty"`
	PortSpeed *int64 `json:"portSpeed,omitempty"`
	RDMA      bool   `json:"rdma,omitempty"`
	// FabricSize is how many GPUs NVLink joins in the device, FabricLinks how many NVLinks each of them has, and FabricVersion the version of
	// Fabric Manager, which the guest's driver needs.
	FabricSize    *int64 `json:"fabricSize,omitempty"`
	FabricLinks   *int64 `json:"fabricLinks,omitempty"`
	FabricVersion string `json:"fabricVersion,omitempty"`
	// PluginVersion and KataVersion are those of the node, "4.1.0"; GPUs and pairs have them.
	PluginVersion string `json:"pluginVersion,omitempty"`
	KataVersion   string `json:"kataVersion,omitempty"`
}

// decodeDevice keeps only those parts of a device that are looked at, because a large cluster has a million devices.
func decodeDevice(s *resourceapi.ResourceSlice, d *resourceapi.Device) *Device {
	kept := &Device{
		ID: ID{s.Spec.Driver, s.Spec.Pool.Name, d.Name}, Node: deref(s.Spec.NodeName), Slice: s.Name, Generation: s.Spec.Pool.Generation,
		Taints: d.Taints, Skips: s.Spec.SkipNodeOperations,
	}
	addresses := []string{anyAddress(d)}
	if kept.ID.IsOurs() {
		address, vf := namedAddresses(d.Name)
		kept.Details = decodeDetails(s.Spec.Pool.Name, address, d)
		addresses = append([]string{kept.Details.Address, cmp.Or(kept.Details.VF, vf)}, joinedAddresses(d.Name)...)
	}
	for _, text := range addresses {
		if at, err := pci.ParseAddress(text); err == nil && kept.Node != "" {
			kept.Places = append(kept.Places, Place{kept.Node, at})
		}
	}
	return kept
}

// anyAddress returns the PCI address of any driver's device: by the standard attribute, or by those that drivers had before it.
func anyAddress(d *resourceapi.Device) string {
	for _, name := range []resourceapi.QualifiedName{publish.AttrPCIBusID, "pciBusID", "pciAddress"} {
		if a := d.Attributes[name].StringValue; a != nil {
			return *a
		}
	}
	return ""
}

func decodeDetails(pool, address string, d *resourceapi.Device) *Details {
	text := func(name resourceapi.QualifiedName) string { return deref(d.Attributes[name].StringValue) }
	number := func(name resourceapi.QualifiedName) *int64 { return d.Attributes[name].IntValue }
	return &Details{
		Attributes: Attributes{
			Address: cmp.Or(text(publish.AttrPCIBusID), address), VF: text(publish.AttrVF), Kind: text(publish.AttrType),
			Model: cmp.Or(text(publish.AttrModel), ids(text(publish.AttrVendor), text(publish.AttrDevice))), Driver: text(publish.AttrDriver),
			Root: text(publish.AttrPCIeRoot), Switch: text(publish.AttrPCIeSwitch), PF: cmp.Or(text(publish.AttrPF), poolPF(pool, text(publish.AttrType))), VFIndex: number(publish.AttrVFIndex),
			NUMA: number(publish.AttrNUMANode), Group: number(publish.AttrIOMMUGroup), Reset: text(publish.AttrReset),
			LinkSpeed: number(publish.AttrLinkSpeed), Interface: text(publish.AttrPFInterface), PortSpeed: number(publish.AttrPortSpeed),
			FabricSize: number(publish.AttrFabricSize), FabricLinks: number(publish.AttrFabricLinks), FabricVersion: text(publish.AttrFabricVersion),
			RDMA:          deref(d.Attributes[publish.AttrRDMA].BoolValue),
			PluginVersion: deref(d.Attributes[publish.AttrPluginVersion].VersionValue), KataVersion: deref(d.Attributes[publish.AttrKataVersion].VersionValue),
		},
		SharedWith: text(publish.AttrSharedWith), Isolated: d.Attributes[publish.AttrIsolated].BoolValue,
		Failed: list(text(publish.AttrAuditFailed)), Severity: rule.Severity(text(publish.AttrAuditSeverity)),
		Domains: list(text(publish.AttrExclusiveDomains)),
		Misfits: publish.Misfits(d), consumes: d.ConsumesCounters,
	}
}

// namedAddresses returns the addresses in the name of a device of kata-vfio. They are needed because nodes may publish few attributes of
// VFs.
func namedAddresses(name string) (address, vf string) {
	parts, err := device.ParseParts(name)
	if err != nil {
		return "", ""
	}
	if device.PartsType(parts) == device.PairType {
		vf = parts[1].Address.String()
	}
	return parts[0].Address.String(), vf
}

// joinedAddresses returns the GPUs of a partition besides the first one, by its name; none for another device.
func joinedAddresses(name string) []string {
	parts, err := device.ParseParts(name)
	if err != nil || device.PartsType(parts) != device.PartitionType {
		return nil
	}
	var all []string
	for _, p := range parts[1:] {
		all = append(all, p.Address.String())
	}
	return all
}

// poolPF returns the PF of a VF by its pool, for nodes that publish few attributes of VFs; empty for another device.
func poolPF(pool, kind string) string {
	if pf, ok := device.PFOfPool(pool); ok && kind == string(device.VFType) {
		return pf.String()
	}
	return ""
}

func ids(vendor, id string) string {
	if vendor == "" {
		return ""
	}
	return vendor + ":" + id
}

func list(words string) []string {
	if words == "" {
		return []string{}
	}
	return strings.Split(words, ",")
}

// Devices returns all devices in the order in which their slices were added, also those of generations that are about to go.
func (c *Cluster) Devices() []*Device {
	c.passes.Add(1)
	return c.devices
}

// On returns the devices of a node.
func (c *Cluster) On(node string) []*Device { return c.byNode[node] }

// At returns the devices that have the function at a place. Several drivers may publish it.
func (c *Cluster) At(p Place) []*Device { return c.byPlace[p] }

// Places returns where published functions are, in order.
func (c *Cluster) Places() []Place {
	c.passes.Add(1)
	all := make([]Place, 0, len(c.byPlace))
	for p := range c.byPlace {
		all = append(all, p)
	}
	slices.SortFunc(all, Place.Compare)
	return all
}

// Device returns a device as the newest slice has it; nil if it is not published.
func (c *Cluster) Device(id ID) *Device { return c.byID[id] }

// Publishes reports whether a node publishes a device of ours.
func (c *Cluster) Publishes(node string) bool {
	return slices.ContainsFunc(c.byNode[node], (*Device).IsOurs)
}

package publish

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Attributes that any DRA driver of PCI devices publishes, so that a claim can
// ask for devices of several drivers under one root.
const (
	AttrPCIeRoot = deviceattribute.StandardDeviceAttributePCIeRoot // "pci0000:3b"
	AttrPCIBusID = deviceattribute.StandardDeviceAttributePCIBusID // "0000:3b:00.0"
	AttrNUMANode = deviceattribute.StandardDeviceAttributeNUMANode // int
)

// Our attributes, in the driver's domain: in CEL
// device.attributes["kata-vfio.dev"].?type.orValue(""). An attribute that
// doesn't apply or is not known is absent, so selectors need optional access:
// an error on one device fails the scheduling of the pod cluster-wide.
const (
	// AttrType is the device type: gpu, pf, vf, gpuvf, nvme, accelerator, other, and gpu-vf for a pair. The other attributes of a pair
	// are its GPU's, except for AttrPF, AttrVFIndex and AttrRDMA, and for AttrIsolated and AttrAuditSeverity,
	// which cover both.
	AttrType resourceapi.QualifiedName = "type"
	// AttrVendor and AttrDevice are PCI ids of four hexadecimal digits.
	AttrVendor resourceapi.QualifiedName = "vendor"
	AttrDevice resourceapi.QualifiedName = "device"
	// AttrModel is the device's name in the pci.ids database, cut to 64 bytes.
	AttrModel resourceapi.QualifiedName = "model"
	// AttrVendorName is the vendor's name in the pci.ids database. VFs are without it, to keep slices small.
	AttrVendorName resourceapi.QualifiedName = "vendorName"
	// AttrRule is the name of the node config's rule that selects the device. With it a claim can ask for "a VF of the storage network",
	// even if the nodes have that network on different cards.
	AttrRule resourceapi.QualifiedName = "rule"
	// AttrPFInterface is the network interface of the PF, or of the function itself.
	AttrPFInterface resourceapi.QualifiedName = "pfInterface"
	// AttrPortSpeed is the speed of the PF's port in Mbit/s (int): 25000. It is absent while the port has no link.
	AttrPortSpeed resourceapi.QualifiedName = "portSpeed"
	// AttrMemorySource says where [CapacityMemory] comes from: "model" or "bar". See [device.Function.GPUMemory].
	AttrMemorySource resourceapi.QualifiedName = "memorySource"
	// AttrBoundary is what separates the device from other tenants of its card, in the word of its vendor: "device" of a whole
	// function, "hardwareSlice" or "scheduler" of a VF. A pair has that of its GPU. See [device.Boundary].
	AttrBoundary resourceapi.QualifiedName = "boundary"
	// AttrProfile is the profile of a GPU's slice in the words of the vendor, such as CPX/NPS4. It is absent if the vendor has no profiles.
	// See [nodeconfig.Choice].
	AttrProfile resourceapi.QualifiedName = "profile"
	// AttrCard is the address that identifies the card. It is the same for a PF and its VFs. See [device.Snapshot.Card].
	AttrCard resourceapi.QualifiedName = "card"
	// AttrDriver is the kernel driver that is bound to the function now.
	AttrDriver resourceapi.QualifiedName = "driver"
	// AttrIOMMUGroup is the group's number in this boot (int).
	AttrIOMMUGroup resourceapi.QualifiedName = "iommuGroup"
	// AttrIsolated says whether the judgment on the device has no reason against its isolation (bool).
	AttrIsolated resourceapi.QualifiedName = "isolated"
	// AttrIOMMUBackend is the backend that the setting Auto selects: "iommufd" or "group".
	AttrIOMMUBackend resourceapi.QualifiedName = "iommuBackend"
	// AttrReset is the reset method that is used between tenants, in the kernel's word, or "weak" if the vendor does not say that this
	// method clears the memory.
	AttrReset resourceapi.QualifiedName = "reset"
	// AttrPCIeSwitch is the address of the lowest switch above the device. Without a switch it is the address of the root port above the
	// device, or else of the device's own function. The attribute is never absent: a claim that prefers devices under one switch, and else
	// under one root, has two constraints, and a constraint refuses a device that lacks the attribute even if there is nothing to match.
	AttrPCIeSwitch resourceapi.QualifiedName = "pcieSwitch"
	// AttrVF is the address of a pair's VF.
	AttrVF resourceapi.QualifiedName = "vf"
	// AttrPF is the address of a VF's physical function.
	AttrPF resourceapi.QualifiedName = "pf"
	// AttrVFIndex is a VF's number on its PF, from 0 (int).
	AttrVFIndex resourceapi.QualifiedName = "vfIndex"
	// AttrLinkSpeed is the highest speed per lane of the function's PCIe link in
	// MT/s (int): 16000 for PCIe 4.0. The speed of the moment is not published:
	// idle GPUs train their links down.
	AttrLinkSpeed resourceapi.QualifiedName = "linkSpeed"
	// AttrRDMA is true if the function, or a VF's PF, has an RDMA device on the host now. The RDMA device of a VF itself does not count: it
	// disappears when the VF is bound to vfio-pci, and never exists if no host driver binds the VF. Whether the guest's driver creates one
	// is unknown here.
	AttrRDMA resourceapi.QualifiedName = "rdma"
	// AttrAuditSeverity is the worst severity among the verdicts on the device, notes included, and the checks in AttrAuditFailed; absent
	// if there are neither.
	AttrAuditSeverity resourceapi.QualifiedName = "auditSeverity"
	// AttrAuditFailed lists the IDs of the audit's checks that fail for the device or its node, the worst first: "IOM-003,RST-001". It has
	// as many IDs as fit in 64 bytes, and is absent if no check fails.
	AttrAuditFailed resourceapi.QualifiedName = "auditFailed"
)

// AttrSharedWith is the name of the DRA driver that publishes the same function for containers; absent if the device is not shared. The
// DeviceClass of shared devices is shared-gpu.
const AttrSharedWith resourceapi.QualifiedName = "sharedWith"

// AttrExclusiveDomains are the exclusive domains around a device, each of which belongs to one tenant at a time:
// "Switch/0000:21:00.0,NUMA/1". It is absent if the node config makes none. kata-vfio-controller reserves the domains that this attribute
// names. A list of more than 64 bytes is published as "Node", the domain that contains all others.
const AttrExclusiveDomains resourceapi.QualifiedName = "exclusiveDomains"

// CapacityMemory is the memory of a GPU, or of a VF of one, in bytes.
const CapacityMemory resourceapi.QualifiedName = "memory"

// attributeSet collects attributes and leaves out unknown ones.
type attributeSet map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// text adds a string, cut to the length that the API accepts. It adds no empty string.
func (s attributeSet) text(name resourceapi.QualifiedName, v string) {
	if v == "" {
		return
	}
	v = cut(v, resourceapi.DeviceAttributeMaxValueLength)
	s[name] = resourceapi.DeviceAttribute{StringValue: &v}
}

func (s attributeSet) number(name resourceapi.QualifiedName, v int) {
	n := int64(v)
	s[name] = resourceapi.DeviceAttribute{IntValue: &n}
}

func (s attributeSet) flag(name resourceapi.QualifiedName, v bool) {
	s[name] = resourceapi.DeviceAttribute{BoolValue: &v}
}

// usualAttributes is how many attributes a device usually has. A map that is made with this size need not grow.
const usualAttributes = 24

// attributes returns all known attributes of a device. A device whose function no longer exists has only those that its name tells.
func attributes(n *Node, e *entry) attributeSet {
	s := make(attributeSet, usualAttributes)
	s.text(AttrType, string(e.kind))
	if e.joined != nil {
		s.partition(n, e)
		return s
	}
	s.text(AttrPCIBusID, e.addr.String())
	if e.f != nil {
		s.identity(n, e.f)
		s.topology(n, e.f)
		s.isolation(n, e)
	}
	if e.vf != nil {
		s.pair(n, e)
	}
	s.text(AttrExclusiveDomains, domains(n, e))
	s.fabric(n, e)
	if keep := published(n, e); keep != nil {
		maps.DeleteFunc(s, func(name resourceapi.QualifiedName, _ resourceapi.DeviceAttribute) bool { return !keep(name) })
	}
	return s
}

// isBrief reports whether the device is a NIC's VF for which the node config restricts the published attributes, because a node has many
// VFs.
func isBrief(n *Node, e *entry) bool { return published(n, e) != nil }

// published returns a function that selects the attributes to publish of a device, by the node config; nil if all are published.
func published(n *Node, e *entry) func(resourceapi.QualifiedName) bool {
	if e.f == nil || e.f.Type != device.VFType || e.vf != nil {
		return nil
	}
	switch n.Selection.VFAttributes() {
	case v1alpha1.VFAttributesSelection:
		return isForSelection
	case v1alpha1.VFAttributesMinimal:
		return isMinimal
	case v1alpha1.VFAttributesAll:
	}
	return nil
}

// isForSelection reports whether requests usually select VFs by the attribute. There are at most 14 such attributes, since a Go map with
// more takes twice the memory.
func isForSelection(name resourceapi.QualifiedName) bool {
	switch name {
	case AttrVendor, AttrDevice, AttrPF, AttrPortSpeed, AttrRDMA, AttrAuditSeverity:
		return true
	}
	return isMinimal(name)
}

// isMinimal reports whether requests need the attribute to tell VFs from other devices, to tell networks from each other, or to find what
// is near a GPU. There are at most 8 such attributes, which fit in one group of a Go map. The API server has two such maps for each VF, and
// the scheduler one.
func isMinimal(name resourceapi.QualifiedName) bool {
	switch name {
	case AttrType, AttrRule, AttrPFInterface, AttrIsolated, AttrPCIBusID, AttrPCIeRoot, AttrPCIeSwitch, AttrNUMANode,
		AttrExclusiveDomains: // the ninth attribute, which a device has only if the node config makes domains
		return true
	}
	return false
}

// pair changes the attributes of a pair's GPU into the attributes of the pair.
func (s attributeSet) pair(n *Node, e *entry) {
	s.text(AttrType, string(device.PairType))
	s.text(AttrVF, e.vf.addr.String())
	if e.f == nil || e.vf.f == nil {
		return
	}
	s.nic(n, e.vf.f)
	gpu, vf := n.judgment(e.addr), n.judgment(e.vf.addr)
	s.flag(AttrIsolated, gpu.Isolated && vf.Isolated)
	s.audit(n.failing(e), gpu.Reasons, gpu.Notes, vf.Reasons, vf.Notes)
}

func (s attributeSet) identity(n *Node, f *device.Function) {
	s.text(AttrVendor, f.Vendor.String())
	s.text(AttrDevice, f.Device.String())
	s.text(AttrModel, f.Model)
	s.text(AttrDriver, f.Driver)
	s.text(AttrRule, n.Selection.Choice(f.Address).Name)
	s.text(AttrSharedWith, n.Selection.Choice(f.Address).SharedWith)
	if f.VF == nil {
		s.text(AttrVendorName, f.VendorName)
	}
	s.text(AttrBoundary, string(n.Snapshot.Boundary(f)))
	s.text(AttrProfile, n.Selection.Choice(f.Address).Profile)
	s.text(AttrCard, n.Snapshot.Card(f).String())
	if size, known := n.memory(f); size > 0 {
		s.text(AttrMemorySource, map[bool]string{true: "model", false: "bar"}[known])
	}
	s.nic(n, f)
}

// nic adds the attributes of a NIC, or of a VF of any device.
func (s attributeSet) nic(n *Node, f *device.Function) {
	if hasRDMA(n, f) {
		s.flag(AttrRDMA, true)
	}
	if f.VF != nil {
		s.text(AttrPF, f.VF.PF.String())
		s.number(AttrVFIndex, f.VF.Index)
	}
	s.port(n, f)
}

// port adds the interface and the speed of a NIC's port. A VF has those of its PF.
func (s attributeSet) port(n *Node, f *device.Function) {
	pf := f
	if f.VF != nil {
		pf, _ = n.Snapshot.Function(f.VF.PF)
	}
	if pf == nil || len(pf.Children.Net) == 0 {
		return
	}
	// A function may have several interfaces: both ports of a ConnectX-3 are one function. The first one counts.
	s.text(AttrPFInterface, pf.Children.Net[0])
	if pf.PortSpeed > 0 {
		s.number(AttrPortSpeed, pf.PortSpeed)
	}
}

func hasRDMA(n *Node, f *device.Function) bool {
	if f.VF == nil || f.Class.Base() != pci.BaseNetwork {
		return len(f.Children.RDMA) > 0
	}
	// A VF on VFIO has no RDMA device on the node. In the VM it has one if its PF has one on the node.
	pf, ok := n.Snapshot.Function(f.VF.PF)
	return len(f.Children.RDMA) > 0 || ok && len(pf.Children.RDMA) > 0
}

func (s attributeSet) topology(n *Node, f *device.Function) {
	s.text(AttrPCIeRoot, f.Root)
	if f.NUMANode != nil {
		s.number(AttrNUMANode, *f.NUMANode)
	}
	s.text(AttrPCIeSwitch, junction(f).String())
	if speed, ok := linkSpeed(findLink(n, f)); ok {
		s.number(AttrLinkSpeed, speed)
	}
}

// findLink returns the PCIe link above a function. The link of a VF is that of its PF.
func findLink(n *Node, f *device.Function) *device.Link {
	if f.VF == nil {
		return f.Link
	}
	if pf, ok := n.Snapshot.Function(f.VF.PF); ok {
		return pf.Link
	}
	return nil
}

func (s attributeSet) isolation(n *Node, e *entry) {
	f := e.f
	if f.Group != nil {
		s.number(AttrIOMMUGroup, *f.Group)
	}
	s.text(AttrIOMMUBackend, "group")
	if n.Snapshot.Host.IOMMUFD {
		s.text(AttrIOMMUBackend, "iommufd")
	}
	v := n.judgment(f.Address)
	s.flag(AttrIsolated, v.Isolated)
	if v.Reset != nil {
		s.text(AttrReset, v.Reset.Word(f))
	}
	s.audit(n.failing(e), v.Reasons, v.Notes)
}

// audit adds the failing checks, and the worst severity among these checks and the verdicts.
func (s attributeSet) audit(failing []rule.Failure, said ...[]rule.Verdict) {
	var worst rule.Severity
	if reason, ok := findWorst(slices.Concat(said...)); ok {
		worst = reason.Severity
	}
	list := ""
	for i, f := range failing {
		if i == 0 && (worst == "" || f.Severity.Compare(worst) < 0) {
			worst = f.Severity
		}
		// The API server refuses a whole slice for one value that is too long. What does not fit is in the audit's report.
		if longer := strings.TrimPrefix(list+","+f.ID, ","); len(longer) <= resourceapi.DeviceAttributeMaxValueLength {
			list = longer
		}
	}
	s.text(AttrAuditSeverity, string(worst))
	s.text(AttrAuditFailed, list)
}

// junction returns the address of the lowest switch above f. Without a switch it returns the address of the port closest to the root
// complex on the way to f, else that of a VF's PF, else that of f.
func junction(f *device.Function) pci.Address {
	switch {
	case f.Switch != nil:
		return *f.Switch
	case len(f.Upstream) > 0:
		return f.Upstream[0]
	case f.VF != nil:
		return f.VF.PF
	}
	return f.Address
}

// linkSpeed converts the link's highest speed from the kernel's text, such as "16.0 GT/s PCIe" (drivers/pci/probe.c, pci_speed_string), to
// MT/s. It returns false if the speed is "Unknown", or if the function has no link.
func linkSpeed(l *device.Link) (int, bool) {
	if l == nil {
		return 0, false
	}
	number, _, ok := strings.Cut(l.MaxSpeed, " GT/s")
	if !ok {
		return 0, false
	}
	gts, err := strconv.ParseFloat(number, 64)
	return int(gts * 1000), err == nil && gts > 0 && gts < 1e6
}

// capacity returns a GPU's memory, and the sizes of the memory BARs in bytes as bar0, bar2, and so on. A VM needs address space for its
// devices' BARs.
func capacity(n *Node, f *device.Function) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	var all map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
	for _, bar := range f.BARs {
		// The quantity is made from an int64.
		if bar.IO || bar.Size == 0 || bar.Size > 1<<62 {
			continue
		}
		if all == nil {
			all = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
		}
		all[capacityOfBAR(bar.Index)] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(bar.Size), resource.BinarySI)}
	}
	if size, _ := n.memory(f); all != nil && size > 0 && size <= 1<<62 {
		all[CapacityMemory] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(size), resource.BinarySI)}
	}
	return all
}

// memory returns the memory of a GPU or of a GPU's slice in bytes, and whether the size is known for certain. The node config gives the
// memory of slices, and the card's model that of all others.
func (n *Node) memory(f *device.Function) (size uint64, known bool) {
	if size := n.Selection.Choice(f.Address).Memory; size > 0 {
		return size, true
	}
	return n.Snapshot.GPUMemory(f)
}

// cut returns at most limit bytes of s, whole characters only.
func cut(s string, limit int) string {
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// Package device has the devices that a node can assign: PCI functions with the facts for planning, publishing and
// auditing. All types are values; package inventory reads them from sysfs.
//
// A fact that the kernel does not state is a nil pointer or an empty string, never a made-up number.
package device

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Type is the operator's name for a kind of function.
type Type string

// The type of a function follows from its purpose, for PFs and VFs alike. [PFType] and [VFType] are a NIC and its VF. A
// function with SR-IOV whose class has no type is of [PFType], too.
const (
	GPU         Type = "gpu"
	PFType      Type = "pf"
	VFType      Type = "vf"
	GPUVF       Type = "gpuvf"
	NVMe        Type = "nvme"
	Accelerator Type = "accelerator"
	Bridge      Type = "bridge"
	Other       Type = "other"
)

// Types lists every type, in the order in which they are shown.
func Types() []Type { return []Type{GPU, PFType, VFType, GPUVF, NVMe, Accelerator, Bridge, Other} }

// Classify returns the type of a function from its class, its header and its SR-IOV role. A display, a 3D controller or
// a processing accelerator is a GPU, even if it has SR-IOV; its VFs are of type GPUVF. A network controller without
// SR-IOV is a PF too, because it is the whole physical function. Co-processors, for encryption or compression, are
// accelerators. An NVSwitch is of type Other. So is an encryption controller (class 10), because most of these are
// security processors of the platform.
func Classify(class pci.Class, header pci.HeaderType, isPF, isVF bool) Type {
	switch {
	case isVF:
		return classifyVF(class)
	case isBridge(class, header):
		return Bridge
	case class.Base() == pci.BaseDisplay, class.Base() == pci.BaseAccelerator:
		return GPU
	case class.Base() == pci.BaseNetwork:
		return PFType
	case class.Sub() == pci.ClassNVMe:
		return NVMe
	case class.Sub() == pci.ClassCoprocessor:
		return Accelerator
	case isPF:
		return PFType
	default:
		return Other
	}
}

func classifyVF(class pci.Class) Type {
	switch {
	case class.Base() == pci.BaseNetwork:
		return VFType
	case class.Base() == pci.BaseDisplay, class.Base() == pci.BaseAccelerator:
		return GPUVF
	case class.Sub() == pci.ClassNVMe:
		return NVMe
	case class.Sub() == pci.ClassCoprocessor:
		return Accelerator
	default:
		return Other
	}
}

// ParseName splits a device name as written by [Function.Name] into type and
// address.
func ParseName(name string) (Type, pci.Address, error) {
	prefix, label, ok := strings.Cut(name, "-")
	if !ok {
		return "", pci.Address{}, fmt.Errorf("device name %q: want <type>-<domain>-<bus>-<device>-<function>", name)
	}
	addr, err := pci.ParseLabel(label)
	if err != nil {
		return "", pci.Address{}, fmt.Errorf("device name %q: want <type>-<domain>-<bus>-<device>-<function>", name)
	}
	for _, t := range Types() {
		if prefix == string(t) && t != Bridge {
			return t, addr, nil
		}
	}
	return "", pci.Address{}, fmt.Errorf("device name %q: %q is not a device type", name, prefix)
}

// Function is one PCI function as the kernel shows it at the time of a scan.
// Its JSON names are stable for machines.
type Function struct {
	Address pci.Address `json:"address"`
	// Type is the type that operators request; see [Classify].
	Type      Type      `json:"type"`
	Vendor    pci.ID    `json:"vendor"`
	Device    pci.ID    `json:"device"`
	SubVendor pci.ID    `json:"subsystemVendor"`
	SubDevice pci.ID    `json:"subsystemDevice"`
	Class     pci.Class `json:"class"`
	Revision  uint8     `json:"revision"`
	// VendorName and Model come from the pci.ids database; empty if unknown.
	VendorName string `json:"vendorName,omitempty"`
	Model      string `json:"model,omitempty"`
	// Modalias is the kernel's match string, "pci:v000010DEd...".
	Modalias string `json:"modalias,omitempty"`

	// Inode is the inode number of the function's directory in sysfs. In one boot, each function that the kernel adds
	// gets a new number. It is 0 if it is unknown, such as in an archive; see [Identity].
	Inode uint64 `json:"-"`

	// Driver is the bound kernel driver, empty if there is none.
	Driver string `json:"driver"`
	// DriverOverride is sysfs' driver_override, empty when not set.
	DriverOverride string `json:"driverOverride,omitempty"`
	// Locked says that an unbind, a probe or a reset of the function hung in the kernel during the scan and held the
	// function's device lock. Then DriverOverride could not be read, and a write to the function would hang too.
	Locked bool `json:"locked,omitempty"`
	// VGPUType is the number of the vGPU type that a VF on NVIDIA's driver has: "0" for none, empty for other functions.
	VGPUType string `json:"vgpuType,omitempty"`
	// Detaching is the driver that still had the function although an unbind from it had begun. Locked is set then,
	// too.
	Detaching string `json:"detaching,omitempty"`

	// NUMANode is nil if the kernel says -1.
	NUMANode *int `json:"numaNode,omitempty"`
	// Root is the root bus, "pci0000:3b".
	Root string `json:"pcieRoot,omitempty"`
	// Switch is the lowest switch upstream port above the function; nil when
	// the function hangs off a root port or root bus directly.
	Switch *pci.Address `json:"pcieSwitch,omitempty"`
	// Upstream lists the bridges above the function, the root port first.
	Upstream []pci.Address `json:"upstream,omitempty"`
	// Group is the IOMMU group number; nil without an IOMMU. Numbers may
	// change over a reboot and are never stored as identity.
	Group *int `json:"iommuGroup,omitempty"`

	// Manager is set for a ConnectX function, other than a VF, on a node with GPUs whose NVSwitches are managed by such
	// functions.
	Manager *SwitchManager `json:"switchManager,omitempty"`

	PF *PF `json:"sriov,omitempty"` // set when the function is a PF
	VF *VF `json:"-"`               // set when the function is a VF

	BARs []BAR `json:"bars,omitempty"`
	// ROM is the size of the option ROM in bytes, 0 for none.
	ROM  uint64 `json:"rom,omitempty"`
	Link *Link  `json:"link,omitempty"`
	// PortSpeed is the speed of a PF's network port in Mbit/s; 0 without a link, and for a VF.
	PortSpeed int `json:"portSpeed,omitempty"`
	// ResetMethods are sysfs' reset_method words in the kernel's order; empty
	// when the function can't be reset on its own.
	ResetMethods []string         `json:"resetMethods,omitempty"`
	Capabilities pci.Capabilities `json:"capabilities"`
	// ConfigDead is set when configuration space reads all ones: the function
	// fell off the bus or does not answer.
	ConfigDead bool `json:"configDead,omitempty"`
	// D3cold says why ConfigDead is set, if the kernel states it: the function is without power. The kernel powers a
	// function up before it reads its configuration space, but this function did not come back.
	D3cold bool `json:"d3cold,omitempty"`
	// FatalErrors is how many fatal errors (AER) the kernel has counted since it found the function. It is also 0 if
	// the kernel does not count them.
	FatalErrors uint64 `json:"fatalErrors,omitempty"`

	Children Children `json:"children"`
	// Uses are the present uses of the function by its node; empty if it has none.
	Uses []Use `json:"uses,omitempty"`
	// BootVGA is set for the adapter that the firmware used as console.
	BootVGA bool `json:"bootVGA,omitempty"`
}

// PF is the SR-IOV side of a physical function.
type PF struct {
	TotalVFs int `json:"totalVFs"`
	NumVFs   int `json:"numVFs"`
	// Autoprobe is sriov_drivers_autoprobe: whether host drivers take new VFs.
	Autoprobe bool `json:"autoprobe"`
	// VFs are the addresses of the enabled VFs, by index.
	VFs []pci.Address `json:"vfs,omitempty"`
	// Partition says how AMD's driver gim has divided the GPU's compute dies and memory among its VFs: "CPX/NPS4". It
	// is empty for other drivers, and if gim does not report it.
	Partition string `json:"partition,omitempty"`
	// UnassignedBARs are the VF BARs for which the kernel found no room in the node's memory. If there are any, the
	// kernel makes no VFs (drivers/pci/iov.c sriov_enable).
	UnassignedBARs []int `json:"unassignedBARs,omitempty"`
}

// VF is the link from a virtual function to its PF.
type VF struct {
	PF    pci.Address
	Index int
}

// Link is the state of the PCIe link above the function: a speed in the kernel's words, "16.0 GT/s PCIe", and a number
// of lanes. A VF has none: it uses its PF's link, and hardware fills in the VF's own link registers only in part.
type Link struct {
	Speed    string `json:"speed"`
	Width    int    `json:"width"`
	MaxSpeed string `json:"maxSpeed"`
	MaxWidth int    `json:"maxWidth"`
}

// LinkDown reports whether the function has a PCIe link that is down.
func (f *Function) LinkDown() bool { return f.Link != nil && f.Link.Width == 0 && f.Link.MaxWidth > 0 }

// Children are the names that kernel subsystems gave to the function.
type Children struct {
	Net   []string `json:"net,omitempty"`
	RDMA  []string `json:"rdma,omitempty"`
	DRM   []string `json:"drm,omitempty"`  // card0, renderD128
	NVMe  []string `json:"nvme,omitempty"` // nvme0
	Block []string `json:"block,omitempty"`
	// VFIO is the function's VFIO character device ("vfio3"), present while a
	// VFIO driver is bound and the kernel has the cdev interface.
	VFIO string `json:"vfio,omitempty"`
	// Served says that a driver serves the function through VFIO now, with a node of its own or only through its
	// group's node.
	Served bool `json:"-"`
	// Nodes are the names below /dev of the device nodes of the function and of all its child devices: "dri/card0",
	// "nvme0", "nvme0n1p1", "infiniband/uverbs0", "snd/controlC1", "nvidia0", "vfio/devices/vfio3". The node of the VFIO
	// group is not among them.
	Nodes []string `json:"nodes,omitempty"`
}

// Card returns the address of function 0 of f's physical device. There is only one device at the lower end of a PCI
// Express link, so all functions of its bus belong to that device. With ARI, its functions from the ninth on have other
// device numbers (pci_scan_slot and only_one_child in drivers/pci/probe.c). Elsewhere, all functions of a device have
// one device number.
func (f *Function) Card() pci.Address {
	card := f.Address
	card.Function = 0
	if f.onLink() {
		card.Device = 0
	}
	return card
}

// FirstFunction returns [Function.Card] if that address has another device number than f. Otherwise it returns nil,
// because f's own address shows the card.
func (f *Function) FirstFunction() *pci.Address {
	if card := f.Card(); card.Device != f.Address.Device {
		return &card
	}
	return nil
}

// onLink reports whether f is a physical function at the lower end of a PCI Express link.
func (f *Function) onLink() bool {
	if f.VF != nil || len(f.Upstream) == 0 || f.Capabilities.Express == nil {
		return false
	}
	switch f.Capabilities.Express.Type {
	case pci.Endpoint, pci.LegacyEndpoint, pci.UpstreamPort, pci.PCIeToPCI:
		return true
	case pci.RootPort, pci.DownstreamPort, pci.PCIToPCIe, pci.RCEndpoint, pci.RCEventCollector:
	}
	return false
}

// Name is the function's device name in ResourceSlices, a DNS label:
// "gpu-0000-3b-00-0".
func (f *Function) Name() string { return string(f.Type) + "-" + f.Address.Label() }

// HasName reports whether name is the function's device name, or a name that earlier versions gave to the function. A
// claim that was allocated under such a name keeps it.
func (f *Function) HasName(name string) bool {
	return name == f.Name() || slices.ContainsFunc(f.formerTypes(), func(t Type) bool { return name == string(t)+"-"+f.Address.Label() })
}

// formerTypes returns the types that earlier versions gave to the function. Those versions had no type for
// accelerators, and none for VFs of devices other than NICs: every VF was of type [VFType], and a PF was of type
// [PFType] unless it was a GPU.
func (f *Function) formerTypes() []Type {
	switch {
	case f.VF != nil && f.Type == Accelerator:
		return []Type{Other, VFType}
	case f.VF != nil && f.Type != VFType:
		return []Type{VFType}
	case f.PF != nil && (f.Type == Accelerator || f.Type == NVMe):
		return []Type{PFType}
	case f.Type == Accelerator:
		return []Type{Other}
	}
	return nil
}

// CanReset reports whether the kernel offers the reset method for f.
func (f *Function) CanReset(method string) bool {
	return slices.Contains(f.ResetMethods, method)
}

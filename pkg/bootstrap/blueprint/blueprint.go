// Package blueprint has the desired state of the nodes of one pool, as an operator
// writes it: a versioned YAML document, so that nodes are the same and stay so.
//
//	apiVersion: bootstrap.kata-vfio.dev/v1alpha1
//	kind: NodeBlueprint
//	kernel:
//	  iommu: On
//	  hugePages: [{size: 1Gi, count: 64}]
//	vfio:
//	  keepOff: ["0000:3b:00.0"]
//	virtualFunctions:
//	- {pf: "0000:5e:00.0", count: 8}
//	versions:
//	  kernel: {minimum: "6.6"}
package blueprint

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// APIVersion and Kind identify the document.
const (
	APIVersion = "bootstrap.kata-vfio.dev/v1alpha1"
	Kind       = "NodeBlueprint"
)

// Blueprint is the desired state of a node. Unset fields have defaults.
type Blueprint struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name is the name of the pool, for display and reports.
	Name   string `json:"name,omitempty"`
	Kernel Kernel `json:"kernel"`
	VFIO   VFIO   `json:"vfio"`
	// VirtualFunctions has the numbers of VFs that PFs have from boot on, as in a node config. Other PFs are unchanged.
	VirtualFunctions []v1alpha1.VFRule `json:"virtualFunctions,omitempty"`
	// Fabric makes Fabric Manager divide the GPUs that NVLink joins. If it is unset, bootstrap leaves Fabric Manager alone.
	Fabric     Fabric     `json:"fabric"`
	Network    Network    `json:"network"`
	Containers Containers `json:"containers"`
	Versions   Versions   `json:"versions"`
	// Labels are the labels of the Kubernetes node. Bootstrap prints the command that sets them, because it has no access to
	// the cluster.
	Labels map[string]string `json:"labels,omitempty"`
}

// IOMMUMode is the mode of the IOMMU for functions that no VM has.
type IOMMUMode string

// Modes. On translates the DMA of all functions. Passthrough lets functions of the node itself reach all memory.
const (
	IOMMUOn          IOMMUMode = "On"
	IOMMUPassthrough IOMMUMode = "Passthrough"
)

// Kernel configures the kernel and its command line.
type Kernel struct {
	// IOMMU is [IOMMUOn] if empty.
	IOMMU IOMMUMode `json:"iommu,omitempty"`
	// Arguments are further words of the command line, such as "efi=disable_early_pci_dma". "iommu.strict=1" is not among the
	// defaults: it costs the node's own I/O throughput, and the kernel invalidates a VM's mappings at once even without it.
	Arguments []string    `json:"arguments,omitempty"`
	HugePages []HugePages `json:"hugePages,omitempty"`
	// EarlyBinding keeps vendor drivers off the functions of [VFIO.KeepOff] and [VFIO.KeepOffMatching] already in the initial
	// RAM file system. The policy of these functions in the node config must be "bound".
	EarlyBinding bool `json:"earlyBinding,omitempty"`
}

// HugePageSize is a size of huge pages.
type HugePageSize string

// The sizes.
const (
	HugePage2Mi HugePageSize = "2Mi"
	HugePage1Gi HugePageSize = "1Gi"
)

// KiB returns the size in KiB, as in the names below /sys/kernel/mm/hugepages.
func (s HugePageSize) KiB() int {
	if s == HugePage1Gi {
		return 1 << 20
	}
	return 2 << 10
}

// HugePages is a number of huge pages that the node reserves for VMs.
type HugePages struct {
	Size  HugePageSize `json:"size"`
	Count int          `json:"count"`
	// Node is the NUMA node. If it and Device are unset, the kernel spreads the pages over all nodes.
	Node *int `json:"node,omitempty"`
	// Device is a function. The pages are on its NUMA node, for the VM that gets the function. The counts of functions
	// on one node add up.
	Device *pci.Address `json:"device,omitempty"`
}

// VFIO configures VFIO's modules.
type VFIO struct {
	// DisableDenylist lets tenants get devices on the kernel's denylist, which an untrusted user can exploit.
	DisableDenylist bool `json:"disableDenylist,omitempty"`
	// KeepOff are functions that vendor drivers must not bind: their driver_override is vfio-pci from boot on. They are
	// listed by address, because an ID matches every function of a model.
	KeepOff []pci.Address `json:"keepOff,omitempty"`
	// KeepOffMatching selects more functions for KeepOff, as the rules of a node config do. It selects from the functions that
	// the node has when bootstrap runs, and skips those that the node uses. A match may select nothing: it is then for other
	// boards.
	KeepOffMatching []v1alpha1.DeviceMatch `json:"keepOffMatching,omitempty"`
	// ResetMethods set how the kernel resets functions, in place of its own order. The last match decides.
	ResetMethods []ResetMethods `json:"resetMethods,omitempty"`
	// AllowBootConsole permits KeepOff and KeepOffMatching to include the function that drives the boot console. The console's
	// screen then shows nothing more once the kernel has started.
	AllowBootConsole bool `json:"allowBootConsole,omitempty"`
}

// ResetMethods are the kernel's methods to reset the functions of a match.
type ResetMethods struct {
	// Match selects by vendors, devices, classes or addresses. It can't select by type, because udev knows no types of devices.
	Match v1alpha1.DeviceMatch `json:"match"`
	// Methods are the kernel's names of reset methods (Documentation/ABI/testing/sysfs-bus-pci), in the order in which the
	// kernel tries them.
	Methods []string `json:"methods"`
}

// ResetByBus resets the bus of a function that is alone below its port.
const ResetByBus = "bus"

// resetMethods returns the kernel's names of reset methods, except for "default", which stands for the kernel's own order.
func resetMethods() []string {
	return []string{"device_specific", "acpi", "flr", "af_flr", "pm", ResetByBus, "cxl_bus"}
}

// Fabric configures NVIDIA's Fabric Manager.
type Fabric struct {
	// Partitions makes Fabric Manager give VMs partitions of GPUs, at the request of the plugin alone: Fabric Manager's API is
	// on a socket that only root can reach.
	Partitions bool `json:"partitions,omitempty"`
	// Activate lists the partitions, by Fabric Manager's numbers, that are activated at each boot. It is for nodes whose node
	// config does not set fabric: if it does, the plugin activates the partitions of claims.
	Activate []int `json:"activate,omitempty"`
}

// Network configures the node's network managers.
type Network struct {
	// LeaveVFsAlone keeps NetworkManager and systemd-networkd off VFs. The default is true.
	LeaveVFsAlone *bool `json:"leaveVFsAlone,omitempty"`
}

// Versions are the required versions of the node's programs. Empty ones are not checked.
type Versions struct {
	Kernel     Version `json:"kernel"`
	Containerd Version `json:"containerd"`
	CRIO       Version `json:"crio"`
	Kata       Version `json:"kata"`
	// Chart is the version of the Helm chart. Only the chart's own bootstrap knows it (--chart-version): no file of a
	// node has it.
	Chart Version `json:"chart"`
}

// KeepsOff reports whether the blueprint may keep drivers off functions.
func (v *VFIO) KeepsOff() bool { return len(v.KeepOff)+len(v.KeepOffMatching) > 0 }

// Version is a required version: an exact one or a minimum.
type Version struct {
	Exact   string `json:"exact,omitempty"`
	Minimum string `json:"minimum,omitempty"`
}

// Default returns the blueprint that applies without a file.
func Default() *Blueprint {
	b := &Blueprint{}
	b.fill()
	return b
}

// fill sets the default of every unset field.
func (b *Blueprint) fill() {
	b.APIVersion, b.Kind = APIVersion, Kind
	if b.Kernel.IOMMU == "" {
		b.Kernel.IOMMU = IOMMUOn
	}
	if b.Network.LeaveVFsAlone == nil {
		b.Network.LeaveVFsAlone = new(true)
	}
	if b.Labels == nil {
		b.Labels = map[string]string{"kata-vfio.dev/node": "true"}
	}
}

// Wanted reports whether a version is required.
func (v Version) Wanted() bool { return v.Exact != "" || v.Minimum != "" }

// Admits reports whether a version meets the requirement. Exact ignores a leading "v". Minimum compares numbers up to
// the first character that is neither a digit nor a dot: "6.12.9-amd64" is 6.12.9. Zeros at the end of a minimum require
// nothing: "2.2" meets "2.2.0", and "2.x" meets "2.0".
func (v Version) Admits(have string) bool {
	if v.Exact != "" {
		return strings.TrimPrefix(have, "v") == strings.TrimPrefix(v.Exact, "v")
	}
	wanted := numbers(v.Minimum)
	for len(wanted) > 1 && wanted[len(wanted)-1] == 0 {
		wanted = wanted[:len(wanted)-1]
	}
	return slices.CompareFunc(numbers(have), wanted, cmp.Compare[int]) >= 0
}

// Depends reports whether a version of which only the major number is known, such as "2.x", may or may not meet the
// requirement.
func (v Version) Depends(have string) bool {
	major, partly := strings.CutSuffix(have, ".x")
	if !partly || v.Admits(have) {
		return false
	}
	known, wanted := numbers(major), numbers(cmp.Or(v.Exact, v.Minimum))
	return len(known) > 0 && len(wanted) > 0 && known[0] == wanted[0]
}

// String describes the requirement.
func (v Version) String() string {
	if v.Exact != "" {
		return v.Exact
	}
	return v.Minimum + " or newer"
}

// numbers returns the numbers at the start of a version.
func numbers(version string) []int {
	version = strings.TrimPrefix(version, "v")
	if end := strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		version = version[:end]
	}
	var all []int
	for part := range strings.SplitSeq(strings.Trim(version, "."), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return all
		}
		all = append(all, n)
	}
	return all
}

func asInvalid(err error) (*v1alpha1.InvalidError, bool) {
	return errors.AsType[*v1alpha1.InvalidError](err)
}

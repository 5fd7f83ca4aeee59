package device

import (
	"slices"
	"strconv"
	"strings"
)

// Machine describes the properties of the machine that decide how the node gets an IOMMU.
type Machine struct {
	// Arch is empty if no file shows it, as in a partial copy of a node.
	Arch Arch `json:"arch,omitempty"`
	// Hypervisor is empty on bare metal, and if no file shows one.
	Hypervisor Hypervisor `json:"hypervisor,omitempty"`
}

// Arch is a kernel's architecture.
type Arch string

// Architectures.
const (
	X86 Arch = "x86"
	Arm Arch = "arm"
)

// Hypervisor is the node's role under a hypervisor.
type Hypervisor string

// Kinds.
const (
	// VM: a virtual machine of any hypervisor but Xen.
	VM Hypervisor = "VM"
	// XenGuest: a virtual machine of Xen.
	XenGuest Hypervisor = "Xen guest"
	// XenDom0: the domain that manages Xen. It has the node's devices, and Xen has the IOMMU.
	XenDom0 Hypervisor = "Xen dom0"
)

// IsVM reports whether the node is a virtual machine, so that the hypervisor chooses its devices and its IOMMU.
func (m Machine) IsVM() bool { return m.Hypervisor == VM || m.Hypervisor == XenGuest }

// DetectMachine returns the machine of the kernel. text returns the content of a file, named without the leading slash,
// or "" if the file does not exist.
func DetectMachine(text func(file string) string) Machine {
	cpu := text("proc/cpuinfo")
	m := Machine{Arch: detectArch(strings.TrimSpace(text("proc/sys/kernel/arch")), cpu)}
	switch {
	case isXenDom0(text):
		m.Hypervisor = XenDom0
	case strings.TrimSpace(text("sys/hypervisor/type")) == "xen": // Documentation/ABI/stable/sysfs-hypervisor-xen
		m.Hypervisor = XenGuest
	case slices.Contains(CPUFlags(cpu), "hypervisor"), m.Arch == Arm && isArmVM(text):
		m.Hypervisor = VM
	}
	return m
}

// detectArch uses the kernel's own answer (since 6.1, Documentation/admin-guide/sysctl/kernel.rst). For older kernels
// it uses the words of /proc/cpuinfo, which differ between architectures (arch/x86/kernel/cpu/proc.c,
// arch/arm64/kernel/cpuinfo.c).
func detectArch(name, cpuinfo string) Arch {
	switch {
	case name == "x86_64":
		return X86
	case name == "aarch64":
		return Arm
	case name != "":
		return ""
	case field(cpuinfo, "CPU implementer") != "":
		return Arm
	case field(cpuinfo, "flags") != "":
		return X86
	}
	return ""
}

// isXenDom0 makes the checks of systemd-detect-virt (src/basic/virt.c detect_vm_xen_dom0): xenfs, which may not be
// mounted, shows control_d; and features is a mask in hexadecimal digits (include/xen/interface/features.h).
func isXenDom0(text func(string) string) bool {
	const dom0 = 1 << 11 // XENFEAT_dom0
	features, err := strconv.ParseUint(strings.TrimSpace(text("sys/hypervisor/properties/features")), 16, 64)
	return err == nil && features&dom0 != 0 || strings.Contains(text("proc/xen/capabilities"), "control_d")
}

// isArmVM reports whether the firmware names a hypervisor's machine. Arm has no flag for it. The names are those of
// systemd-detect-virt (src/basic/virt.c dmi_vendor_table) that no bare metal has; the product name of a bare-metal
// instance at Amazon ends in ".metal".
func isArmVM(text func(string) string) bool {
	vendor, product := text("sys/class/dmi/id/sys_vendor"), strings.TrimSpace(text("sys/class/dmi/id/product_name"))
	if strings.HasPrefix(vendor, "Amazon EC2") {
		return !strings.Contains(product, ".metal")
	}
	if strings.HasPrefix(vendor, "Microsoft") {
		return product == "Virtual Machine"
	}
	return slices.ContainsFunc([]string{"QEMU", "KVM", "OpenStack", "KubeVirt", "VMware", "Parallels", "Apple Virtualization"}, func(name string) bool {
		return strings.HasPrefix(vendor, name) || strings.HasPrefix(product, name)
	})
}

// CPUFlags returns the flags of the first processor of /proc/cpuinfo on x86.
func CPUFlags(cpuinfo string) []string { return strings.Fields(field(cpuinfo, "flags")) }

// field returns the first value of a name in text of the form "name : value".
func field(text, name string) string {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

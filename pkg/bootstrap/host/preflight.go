package host

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

const preflightPart = "preflight"

// preflight refuses a node that can't work with kata-vfio. For an image it checks neither the IOMMU nor the CPU.
func (n *node) preflight() {
	n.kernel()
	n.volumeManagement()
	if m := n.platform.Loader.Managed; !n.platform.Systemd && (m == nil || !m.ReadOnly) {
		n.problem(state.Problem{
			Part: preflightPart, Code: rule.NoSystemd, Text: "the node has no systemd, so its files for modules at boot, locked memory and huge pages have no effect",
			Fix: "configure the node's init to do what the plan shows",
		})
	}
	if n.platform.Xen == XenConfigured {
		n.problem(state.Problem{
			Part: preflightPart, Code: rule.XenOwnsIOMMU, Text: "GRUB's settings have arguments for Xen (GRUB_CMDLINE_XEN). If Xen starts the node, Xen owns the IOMMU, and VFIO can't use it",
			Fix: "make GRUB start the kernel without Xen by default",
		})
	}
	if !n.platform.Live {
		return
	}
	n.iommu()
	p := n.platform
	// Only x86 shows virtualization as flags of /proc/cpuinfo.
	if p.Arch == "amd64" && !p.CPU.Virtualizes {
		fix := "enable \"Intel Virtualization Technology (VT-x)\" or \"SVM Mode\" in the firmware setup"
		if p.CPU.Guest {
			fix = "enable nested virtualization in the hypervisor of this VM, or use a bare-metal node"
		}
		n.problem(state.Problem{Part: preflightPart, Code: rule.NoVirtualization, Text: "the CPU's virtualization is missing or disabled, so VMs run in emulation or not at all", Fix: fix})
	}
}

func (n *node) kernel() {
	known := n.platform.Modules
	if known == nil {
		return
	}
	// VMs use either: QEMU's vfio-pci takes groups of type 1, or functions of iommufd.
	if !known["vfio_pci"].There() || !known["vfio_iommu_type1"].There() && !known["iommufd"].There() {
		n.problem(state.Problem{
			Part: preflightPart, Code: rule.KernelModuleMissing, Fatal: true, Text: fmt.Sprintf("kernel %s has no vfio-pci, or neither vfio_iommu_type1 nor iommufd", n.platform.Kernel),
			Fix: "install the kernel's package of extra modules, or another kernel (CONFIG_VFIO_PCI, CONFIG_VFIO_IOMMU_TYPE1 or CONFIG_IOMMUFD)",
		})
	}
}

// Names of settings in the firmware setup. Terms vary by vendor.
const (
	switchOn = "in the firmware setup enable \"Intel VT for Directed I/O (VT-d)\" on Intel, \"IOMMU\" (AMD-Vi; below NBIO or AMD CBS) and \"SVM Mode\" on AMD, " +
		"with \"ACS\", \"SR-IOV Support\" and \"Above 4G decoding\" if it has them; then reboot"
	smmuOn    = "in the firmware setup enable the SMMU (\"SMMU\", \"IOMMU\" or \"SMMU Support\"), or update the firmware; then reboot"
	remapping = "in the firmware setup enable \"Interrupt Remapping\" (a sub-item of VT-d; x2APIC often enables it), or update the firmware; then reboot"
)

// iommu records the reason why the running kernel has no IOMMU that VFIO can use: the first row that applies.
func (n *node) iommu() {
	p := n.platform
	f := &p.Firmware
	virtualIOMMU := isolation.VirtualIOMMUFix(archs()[p.Arch])
	none, described := len(p.IOMMUs) == 0, f.DMAR != nil || f.IVRS != nil || f.IORT != nil
	enable, smmu := switchOn, smmuOn
	if p.CPU.Guest {
		enable, smmu = virtualIOMMU, virtualIOMMU
	}
	for _, row := range []struct {
		applies bool
		state.Problem
	}{
		{p.Xen == XenDom0, state.Problem{
			Code: rule.XenOwnsIOMMU, Fatal: true, Text: "the node is Xen's dom0 (/proc/xen/capabilities): Xen owns the IOMMU, and VFIO can't use it", Fix: "start the node's kernel without Xen",
		}},
		{none && !described && (p.CPU.Guest || p.Xen == XenGuest), state.Problem{
			Code: rule.NoIOMMU, Fatal: true, Text: "the node is a virtual machine (by /proc/cpuinfo, /sys/hypervisor or /sys/class/dmi/id) without an IOMMU", Fix: virtualIOMMU,
		}},
		{!none && f.DMAR == nil, state.Problem{}}, // the kernel drives an IOMMU, so the tables of the firmware do not matter
		{!f.Readable && p.Arch == "arm64", state.Problem{
			Code: rule.NoIOMMU, Fatal: true, Text: "the kernel has no IOMMU", Fix: "use a machine with an SMMU that its device tree or firmware describes",
		}},
		{!f.Readable, state.Problem{
			Code: rule.FileUnreadable, Fatal: true, Text: "the firmware's ACPI tables can't be read, and the kernel has no IOMMU", Fix: "run bootstrap on the node as root, with the node's /sys",
		}},
		{!described, state.Problem{
			Code: rule.NoIOMMU, Fatal: true, Text: "the firmware describes no IOMMU (no ACPI table DMAR, IVRS or IORT)", Fix: switchOn,
		}},
		{f.DMAR != nil && !f.DMAR.InterruptRemapping, state.Problem{
			Code: rule.NoInterruptRemapping, Fatal: true, Text: "the firmware offers no interrupt remapping (ACPI table DMAR), so a device could forge interrupts", Fix: remapping,
		}},
		{f.DMAR != nil && none && booted(p), state.Problem{
			Code: rule.IOMMUNotUsed, Text: "the kernel was started with the IOMMU enabled, but uses none", Fix: "read `dmesg | grep -i -e DMAR -e IOMMU`; " + enable,
		}},
		{f.IVRS != nil && none, state.Problem{ // AMD's driver needs no argument
			Code: rule.IOMMUNotUsed, Text: "the firmware describes an IOMMU (ACPI table IVRS), but the kernel uses none", Fix: "read `dmesg | grep -i -e AMD-Vi -e IOMMU`; " + enable,
		}},
		{f.IORT != nil && f.IORT.SMMUs == 0, state.Problem{
			Code: rule.NoIOMMU, Fatal: true, Text: "the kernel drives no SMMU, because the firmware describes none (ACPI table IORT)", Fix: smmu,
		}},
		{f.IORT != nil && none, state.Problem{
			Code: rule.IOMMUNotUsed, Text: "the firmware describes an SMMU (ACPI table IORT), but the kernel drives no SMMU", Fix: "read `dmesg | grep -i -e smmu -e IOMMU`; " + smmu,
		}},
	} {
		if row.applies {
			if row.Text != "" {
				row.Part = preflightPart
				n.problem(row.Problem)
			}
			return
		}
	}
}

// archs returns the architectures by Go's names of them.
func archs() map[string]device.Arch {
	return map[string]device.Arch{"amd64": device.X86, "arm64": device.Arm}
}

// booted reports whether the running kernel's command line enables Intel's IOMMU.
func booted(p *Platform) bool { return kernelargs.Has(p.Cmdline, "intel_iommu=on") }

// Pins returns a problem for each version that differs from the one that the blueprint requires. Versions are the
// facts that parts found. A version that no file shows completely is a problem too, since it can't be verified.
func Pins(b *blueprint.Blueprint, p *Platform, facts []state.Fact) []state.Problem {
	var found []state.Problem
	for _, pin := range []struct {
		part string
		blueprint.Version
	}{{"kernel", b.Versions.Kernel}, {"containerd", b.Versions.Containerd}, {"CRI-O", b.Versions.CRIO}, {"kata", b.Versions.Kata}, {"chart", b.Versions.Chart}} {
		if !pin.Wanted() {
			continue
		}
		have, source := findVersion(pin.part, p, facts)
		switch {
		case have == "":
			found = append(found, state.Problem{
				Part: "versions", Code: rule.VersionUnknown, Text: fmt.Sprintf("the blueprint requires %s %s, but no file shows the installed version", pin.part, pin.Version), Fix: byHand(pin.part),
			})
		case pin.Depends(have):
			found = append(found, state.Problem{
				Part: "versions", Code: rule.VersionUnknown, Text: fmt.Sprintf("the blueprint requires %s %s, but %s shows only that it is %s", pin.part, pin.Version, source, have), Fix: byHand(pin.part),
			})
		case !pin.Admits(withoutEpoch(have)):
			found = append(found, state.Problem{
				Part: "versions", Code: rule.VersionMismatch, Fatal: true, Text: fmt.Sprintf("%s is %s (%s), but the blueprint requires %s", pin.part, have, source, pin.Version),
				Fix: fmt.Sprintf("install %s %s, or change the blueprint", pin.part, pin.Version),
			})
		}
	}
	return found
}

// byHand returns the instruction to find a version that no file shows.
func byHand(part string) string {
	if part == "chart" {
		return "pass its version with --chart-version, as the chart's own bootstrap does, or check it with `helm list -A`"
	}
	return "check the version yourself, or remove it from the blueprint"
}

// withoutEpoch returns a version without the package's epoch: "1:2.2.0" is 2.2.0.
func withoutEpoch(version string) string {
	if epoch, rest, ok := strings.Cut(version, ":"); ok && strings.Trim(epoch, "0123456789") == "" {
		return rest
	}
	return version
}

func findVersion(part string, p *Platform, facts []state.Fact) (version, source string) {
	if part == "kernel" {
		return p.Kernel, "the running kernel"
	}
	for _, f := range facts {
		if f.Part == part && f.Name == "version" && f.Value != "unknown" {
			return f.Value, f.Source
		}
	}
	return "", ""
}

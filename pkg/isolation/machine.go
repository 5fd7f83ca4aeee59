package isolation

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// isCoherent reports whether f is a GPU that is coherent with its CPU, like those of Grace Hopper, Grace Blackwell and GB10. Such a GPU
// uses the CPU's page tables by ATS, and does not work without ATS. Its root port is one of NVIDIA's own CPU, or the kernel has its driver
// for such GPUs (drivers/vfio/pci/nvgrace-gpu).
func isCoherent(s *device.Snapshot, f *device.Function) bool {
	if f.Vendor != pci.VendorNVIDIA || f.Type != device.GPU {
		return false
	}
	if len(f.Upstream) > 0 {
		if root, ok := s.Function(f.Upstream[0]); ok && root.Vendor == pci.VendorNVIDIA {
			return true
		}
	}
	return slices.ContainsFunc(s.Host.VFIOAliases, func(a device.Alias) bool {
		return a.Module == "nvgrace_gpu_vfio_pci" && a.Match(f.Modalias)
	})
}

// HasCoherentGPU reports whether the node has a GPU that needs ATS, so that the kernel must not switch ATS off.
func HasCoherentGPU(s *device.Snapshot) bool {
	return slices.ContainsFunc(s.Functions, func(f device.Function) bool { return isCoherent(s, &f) })
}

// atsFix is the fix of [rule.ATSEnabled] for a function.
func atsFix(s *device.Snapshot, f *device.Function) string {
	switch {
	case isCoherent(s, f):
		return "accept it with a waiver of IOM-019 if you trust the GPU's firmware against its tenant: a GPU that is coherent with the CPU needs ATS"
	case HasCoherentGPU(s):
		return "switch ATS off in the device's firmware, unless you trust its firmware against its tenant; leave the kernel's setting as it is, since the node's GPUs need ATS"
	}
	return "boot with `pci=noats`, or switch ATS off in the device's firmware, unless you trust its firmware against its tenant"
}

// orNoATS adds the kernel argument that switches ATS off to a fix, if the node does not need ATS.
func orNoATS(s *device.Snapshot, fix string) string {
	if HasCoherentGPU(s) {
		return fix
	}
	return fix + ", or boot with `pci=noats`"
}

// DirectTranslatedFix is the fix of a port that forwards translated requests between devices.
func DirectTranslatedFix(s *device.Snapshot, port *device.Function) string {
	return orNoATS(s, "run `"+SetACS(port.Address, port.Capabilities.ACS.Control&^pci.ACSDirectTranslated)+"`")
}

// isArm reports whether the node's IOMMUs are Arm's, or would be Arm's if the node had any.
func isArm(s *device.Snapshot) bool {
	return s.Host.Machine.Arch == device.Arm || slices.ContainsFunc(s.Host.IOMMUs, func(unit string) bool {
		return strings.HasPrefix(unit, "smmu") || strings.HasPrefix(unit, "arm-smmu")
	})
}

// identityFixOn is the fix of [rule.IdentityDefaultDomain] in the words of the node's architecture.
func identityFixOn(s *device.Snapshot, file string) string {
	if isArm(s) {
		return "boot with `iommu.passthrough=0`, or `echo DMA > " + file + "` while no member has a driver"
	}
	return fixAt(rule.IdentityDefaultDomain, "/sys/kernel/iommu_groups/<group>/type", file)
}

// directRegionFix is the fix of [rule.DirectMappedRegion] in the words of the node's architecture.
func directRegionFix(s *device.Snapshot) string {
	if isArm(s) {
		return "ask the platform's vendor for firmware whose IORT table has no reserved memory range (RMR) for the device; no setting of the kernel lifts it"
	}
	return rule.DirectMappedRegion.Fix()
}

// FixOn is [rule.Code.Fix] in the words of the node's machine. The way to an IOMMU and to interrupt remapping depends on its
// architecture and on the hypervisor below the kernel.
func FixOn(s *device.Snapshot, code rule.Code) string {
	switch code {
	case rule.NoIOMMUGroup:
		return iommuFix(s)
	case rule.NoIOMMUMode:
		if s.Host.Machine.Hypervisor == "" && !isArm(s) {
			return rule.NoIOMMUMode.Fix()
		}
		return "remove enable_unsafe_noiommu_mode from /etc/modprobe.d and the kernel command line, and reboot. For an IOMMU, " + iommuFix(s)
	case rule.NoInterruptRemapping:
		return remappingFix(s)
	case rule.DirectMappedRegion:
		return directRegionFix(s)
	}
	return code.Fix()
}

// iommuFix returns how the node can get an IOMMU.
func iommuFix(s *device.Snapshot) string {
	switch m := s.Host.Machine; {
	case m.Hypervisor == device.XenDom0:
		return "Xen keeps the IOMMU for itself: start the kernel without Xen"
	case m.IsVM():
		return "the node is a VM: " + VirtualIOMMUFix(m.Arch)
	case isArm(s):
		return "switch on the SMMU in the firmware setup, or update the firmware if it describes none (ACPI table IORT)"
	case m.Arch == device.X86:
		return "switch on VT-d or AMD-Vi in the firmware setup, boot with `intel_iommu=on` on Intel, and remove any `iommu=off`"
	}
	return rule.NoIOMMUGroup.Fix()
}

// VirtualIOMMUFix returns how a VM can get an IOMMU.
func VirtualIOMMUFix(arch device.Arch) string {
	const fix = "use a bare-metal node, or have the provider of the VM give it a virtual IOMMU"
	if arch == device.Arm {
		return fix + " (QEMU: `-machine virt,iommu=smmuv3`)"
	}
	return fix + " with interrupt remapping (QEMU: `-device intel-iommu,intremap=on,caching-mode=on`), and boot with `intel_iommu=on`"
}

// remappingFix returns how the node can get interrupt remapping.
func remappingFix(s *device.Snapshot) string {
	switch m := s.Host.Machine; {
	case m.Hypervisor == device.XenDom0, m.IsVM():
		return iommuFix(s)
	case isArm(s):
		return "use a machine whose interrupt controller isolates MSIs of devices (GICv3 with an ITS), with Linux 6.11 or later, which shows it"
	}
	return rule.NoInterruptRemapping.Fix()
}

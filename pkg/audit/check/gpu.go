package check

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

const fmGuide = "NVIDIA Fabric Manager User Guide"

// gpuChecks returns the checks of group GPU: links between GPUs that don't pass
// the IOMMU, what else shares one, and what containers get of them.
func gpuChecks() []Check {
	return slices.Concat(fabricChecks(), sharedChecks(), confidentialGPUChecks(), gpuNodeChecks(), gpuInContainerChecks())
}

// fabricChecks are about NVSwitches.
func fabricChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "GPU-001", Title: "The NVSwitch fabric is partitioned where tenants share it", Severity: isolation.Critical,
			Why:     "without partitions every GPU of the board reaches the memory of every other by NVLink, past the IOMMU",
			Fix:     "run Fabric Manager with FABRIC_MODE=1 (shared NVSwitch) and activate one partition for each claim, or give the whole board to one tenant",
			Verify:  "grep ^FABRIC_MODE= /usr/share/nvidia/nvswitch/fabricmanager.cfg",
			Sources: []string{fmGuide + ": FABRIC_MODE, Shared NVSwitch Virtualization Model"},
		}, Judge: fabricPartitioned},
		{Rule: finding.Rule{
			ID: "GPU-002", Title: "A claim's GPUs are one fabric partition, and active for it alone", Severity: isolation.Critical,
			Why: "GPUs of one partition reach one another by NVLink, so that a partition with GPUs of two claims joins their tenants; " +
				"which partitions are active is in no file, so that a number of GPUs that no partition has fails, and all else is for a person",
			Fix:     "choose GPUs by partition in the claim (a constraint on an attribute), and activate just that partition",
			Verify:  "fmpm -l",
			Sources: []string{fmGuide + ": GPU Partitions", "NVIDIA Fabric-Manager-Client: fmpm"},
		}, Judge: onePartition},
		{Rule: finding.Rule{
			ID: "GPU-003", Title: "Fabric Manager listens to the node alone", Severity: isolation.High,
			Why:     "who talks to Fabric Manager may join partitions of tenants; it asks for no password",
			Fix:     "FM_CMD_BIND_INTERFACE=127.0.0.1 or FM_CMD_UNIX_SOCKET_PATH=/run/nvidia-fabricmanager/socket, and restart nvidia-fabricmanager",
			Verify:  "ss -ltnp 'sport = :6666'",
			Sources: []string{fmGuide + ": FM_CMD_BIND_INTERFACE, FM_CMD_PORT_NUMBER, FM_CMD_UNIX_SOCKET_PATH"},
		}, Judge: fabricAPIIsLocal},
		{Rule: finding.Rule{
			ID: "GPU-004", Title: "Who has an NVSwitch has the whole board", Severity: isolation.Critical, Cheap: true,
			Why:     "who has a switch sets its routes: the memory of all GPUs of the board is in reach",
			Fix:     "take the NVSwitch from the claim, or give all GPUs and NVSwitches of the board to the one tenant",
			Verify:  "lspci -d 10de::0680 -k; grep -l SW_MNG /sys/bus/pci/devices/*/vpd",
			Sources: []string{fmGuide + ": Full Passthrough Virtualization Model"},
		}, Judge: switchWithBoard},
	}
}

// sharedChecks are about what else joins two GPUs, or cuts one up.
func sharedChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "GPU-005", Title: "No NVLink bridge joins GPUs of different tenants", Severity: isolation.High, Static: true, Cheap: true,
			Why:     "a bridge that somebody plugged in joins two GPUs past the IOMMU, and no file of the node shows it",
			Fix:     "look into the chassis, keep an inventory, and give GPUs that a bridge joins to one tenant",
			Verify:  "nvidia-smi nvlink -s (with the GPUs on the nvidia driver, before VMs get them)",
			Sources: []string{"nvidia-smi: nvlink --status"},
		}, Judge: noBridge},
		{Rule: finding.Rule{
			ID: "GPU-006", Title: "The GPUs of an XGMI hive are one tenant's", Severity: isolation.High,
			Why:     "GPUs of a hive share one address space by XGMI, past the IOMMU",
			Fix:     "give all GPUs of the hive to one claim",
			Verify:  "cat /sys/bus/pci/devices/*/xgmi_hive_info/xgmi_hive_id",
			Sources: []string{"Linux: drivers/gpu/drm/amd/amdgpu/amdgpu_xgmi.c (DOC: AMDGPU XGMI Support)"},
		}, Judge: hiveWhole},
		{Rule: finding.Rule{
			ID: "GPU-008", Title: "The memory of GPUs that are given away corrects errors", Severity: isolation.Medium, Static: true, Cheap: true,
			Why:     "without ECC a tenant can flip bits in its neighbour's rows of one GPU, and errors go unseen",
			Fix:     "`nvidia-smi -e 1` and a reset, with the GPU on its own driver",
			Verify:  "nvidia-smi -q -d ECC (in the guest, or with the GPU on its own driver)",
			Sources: []string{"nvidia-smi: --ecc-config"},
		}, Judge: gpuECC},
		{Rule: finding.Rule{
			ID: "GPU-009", Title: "No GPU is cut up between tenants", Severity: isolation.High,
			Why:     "virtual GPUs and VFs of one GPU share its memory, caches and firmware: less separation than a GPU each",
			Fix:     "give whole GPUs to untrusted tenants, and keep those that are cut up on other nodes",
			Verify:  "ls /sys/bus/mdev/devices; cat /sys/bus/pci/devices/*/nvidia/current_vgpu_type",
			Sources: []string{"Linux: Documentation/driver-api/vfio-mediated-device.rst", "NVIDIA Virtual GPU Software User Guide: current_vgpu_type"},
		}, Judge: wholeGPUs},
		{Rule: finding.Rule{
			ID: "GPU-010", Title: "A GPU's audio, USB and UCSI functions go with it", Severity: isolation.Medium, Cheap: true,
			Why:     "they share the GPU's reset and power: another tenant, or a driver of the node, has a hand on the tenant's card",
			Fix:     "let the claim take them (the driver does so by itself), or unbind them: `echo <address> > /sys/bus/pci/devices/<address>/driver/unbind`",
			Verify:  "lspci -k -s <bus>:<device>",
			Sources: []string{"Linux: drivers/pci/quirks.c (GPU companion functions)"},
		}, Judge: companionsTogether},
	}
}

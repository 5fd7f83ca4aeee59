package v1alpha1_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestSlicesSayWhatTheyHave: profile and memory are those of the rule's part for the vendor.
func TestSlicesSayWhatTheyHave(t *testing.T) {
	memory := 4096
	for _, c := range []struct {
		rule    v1alpha1.GPUSliceRule
		vendor  pci.ID
		profile string
		gib     uint64
	}{
		{v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA L40S-12Q"}}, pci.VendorNVIDIA, "NVIDIA L40S-12Q", 12},
		{v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA H200X-1-18C"}}, pci.VendorNVIDIA, "NVIDIA H200X-1-18C", 18},
		{v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "something else"}}, pci.VendorNVIDIA, "something else", 0},
		{v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA L40S-12Q"}}, pci.VendorIntel, "", 0},
		{v1alpha1.GPUSliceRule{Intel: &v1alpha1.IntelSlices{MemoryMiB: &memory}}, pci.VendorIntel, "", 4},
		{v1alpha1.GPUSliceRule{}, pci.VendorAMD, "", 0},
	} {
		if profile, gib := c.rule.Profile(c.vendor), c.rule.Memory(c.vendor)>>30; profile != c.profile || gib != c.gib {
			t.Errorf("%+v of vendor %s: profile %q with %d GiB, want %q with %d", c.rule, c.vendor, profile, gib, c.profile, c.gib)
		}
	}
}

func TestGPUSlices(t *testing.T) {
	const head = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ngpuSlices: "
	for text, want := range map[string]string{
		`[{name: mi300x, match: {vendors: ["1002"], devices: ["74a1"]}}, {match: {addresses: ["0000:3b:00.0"]}}]`: "",
		`[{match: {}}]`:                  `NodeConfig: gpuSlices[0].match: empty; set at least one of vendors, devices, addresses (addresses: ["0000:3b:00.0"] for one GPU)`,
		`[{match: {vendors: []}}]`:       `NodeConfig: gpuSlices[0].match.vendors: the list is empty, so that the rule matches nothing; remove it or fill it`,
		`[{match: {devices: ["74a1"]}}]`: `NodeConfig: gpuSlices[0].match.devices: needs vendors: a device id means something only to its vendor`,
		`[{match: {types: [gpu]}}]`:      `NodeConfig: gpuSlices[0].match.types: no such field; the fields here are vendors, devices, addresses`,
		`[{name: a, match: {vendors: ["1002"]}}, {name: a, match: {vendors: ["8086"]}}]`:                                     `NodeConfig: gpuSlices[1].name: "a" is the name of gpuSlices[0] too; no two rules may have one name`,
		`[{match: {vendors: ["8086"]}, intel: {execQuantumMs: 16, preemptTimeoutUs: 8000, priority: Low, memoryMiB: 4096}}]`: "",
		`[{match: {vendors: ["8086"]}, intel: {execQuantumMs: 0}}]`:                                                          `NodeConfig: gpuSlices[0].intel.execQuantumMs: 0 is not from 1 to 100000`,
		`[{match: {vendors: ["8086"]}, intel: {priority: high}}]`:                                                            `NodeConfig: gpuSlices[0].intel.priority: "high" is not Low or Normal`,
		`[{match: {vendors: ["1002"]}, amd: {profile: CPX/NPS4}}]`:                                                           "",
		`[{match: {vendors: ["1002"]}, amd: {profile: CPX}}]`: `NodeConfig: gpuSlices[0].amd.profile: "CPX" is not a partition of compute dies and memory, such as CPX/NPS4; ` +
			"cat spatial_partition_mode and memory_partition_mode of the GPU in /sys/bus/pci/devices print the present one",
		`[{match: {vendors: ["1002"]}, amd: {}}]`:                                           `NodeConfig: gpuSlices[0].amd: empty, so that it refuses nothing; set profile, memoryMiB, or both, or remove it`,
		`[{match: {vendors: ["1002"]}, amd: {memoryMiB: 24576}}]`:                           "",
		`[{match: {vendors: ["1002"]}, amd: {profile: SPX/NPS1, memoryMiB: 196608}}]`:       "",
		`[{match: {vendors: ["1002"]}, amd: {memoryMiB: 0}}]`:                               `NodeConfig: gpuSlices[0].amd.memoryMiB: 0 is not from 1 to 1048576`,
		`[{match: {vendors: ["1002"]}, amd: {memoryMiB: 1048577}}]`:                         `NodeConfig: gpuSlices[0].amd.memoryMiB: 1048577 is not from 1 to 1048576`,
		`[{match: {vendors: ["10de"]}, nvidia: {vgpuType: NVIDIA L40S-12Q, instances: 4}}]`: "",
		`[{match: {vendors: ["10de"]}, nvidia: {instances: 65}}]`: "NodeConfig: gpuSlices[0].nvidia.vgpuType: missing; `nvidia-smi vgpu -s` lists the types of the node's GPUs (\"NVIDIA L40S-12Q\"); " +
			"gpuSlices[0].nvidia.instances: 65 is not from 1 to 64; `nvidia-smi vgpu -s -v` prints Max Instances for each type",
	} {
		got := ""
		if _, err := v1alpha1.DecodeNodeConfig([]byte(head + text + "\n")); err != nil {
			got = withoutLines(err)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

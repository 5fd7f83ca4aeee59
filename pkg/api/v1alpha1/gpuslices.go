package v1alpha1

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// GPUSliceRule permits slices of the GPUs that it matches. Tenants with slices of one GPU share what the attribute boundary of
// the slices says.
type GPUSliceRule struct {
	// Name appears in messages about the rule. Optional. Names must be unique.
	Name  string   `json:"name,omitempty"`
	Match GPUMatch `json:"match"`
	// AMD says how the driver gim must have divided GPUs of AMD. Without it, any way is accepted.
	AMD *AMDSlices `json:"amd,omitempty"`
	// Intel says how GPUs of Intel on driver xe are shared. Without it, slices get a bounded time, and the memory that xe gives them.
	Intel *IntelSlices `json:"intel,omitempty"`
	// NVIDIA says which vGPU the VFs of GPUs of NVIDIA are. It is required for those: a VF without a type is of no use.
	NVIDIA *NVIDIASlices `json:"nvidia,omitempty"`
}

// AMDSlices are what VFs of a GPU on driver gim must be. gim decides it for all VFs of a GPU when no VM runs, and the plugin changes
// nothing: it refuses VFs of a GPU that is divided in another way.
type AMDSlices struct {
	// Profile is the partition of compute dies and memory, such as CPX/NPS4 for 8 VFs of an MI300X. VFs are published with it.
	Profile string `json:"profile,omitempty"`
	// MemoryMiB is the memory of each VF in MiB, such as 24576 for 8 VFs of an MI300X: the model's memory, divided by the number of
	// VFs. gim has no file with the memory that it gave a VF.
	MemoryMiB *int `json:"memoryMiB,omitempty"`
}

// IsPartition reports whether text names a partition of an AMD GPU: its compute dies, a slash, and its memory.
func IsPartition(text string) bool {
	compute, memory, _ := strings.Cut(text, "/")
	return slices.Contains([]string{"SPX", "DPX", "TPX", "QPX", "CPX"}, compute) && slices.Contains([]string{"NPS1", "NPS2", "NPS4", "NPS8"}, memory)
}

// IntelSlices are settings of each slice of a GPU that driver xe shares, while a claim has it. A value that is not set stays as it is
// found, except that no slice may use the GPU without end.
type IntelSlices struct {
	// ExecQuantumMs is how long a slice's work runs before another slice's turn, in milliseconds: 1 to 100000.
	ExecQuantumMs *int `json:"execQuantumMs,omitempty"`
	// PreemptTimeoutUs is how long the GPU waits for work to stop at the end of its turn, in microseconds, before it resets the
	// engine: 1 to 100000000.
	PreemptTimeoutUs *int `json:"preemptTimeoutUs,omitempty"`
	// Priority is Low or Normal.
	Priority SlicePriority `json:"priority,omitempty"`
	// MemoryMiB is the memory of each slice of a discrete GPU, in MiB. It needs Linux 7.0.
	MemoryMiB *int `json:"memoryMiB,omitempty"`
}

// SlicePriority is the priority of a slice's work. Only the PF's may be higher than Normal.
type SlicePriority string

// Priorities.
const (
	SliceLow    SlicePriority = "Low"
	SliceNormal SlicePriority = "Normal"
)

// NVIDIASlices are the vGPUs of a GPU: all have one type.
type NVIDIASlices struct {
	// VGPUType is the type's name as `nvidia-smi vgpu -s` prints it, such as "NVIDIA L40S-12Q".
	VGPUType string `json:"vgpuType"`
	// Instances is how many vGPUs of the type one GPU has, "Max Instances" of `nvidia-smi vgpu -s -v`. That many VFs are published.
	Instances int `json:"instances"`
}

// Profile returns the name of what a slice of the vendor's GPU is made to be; empty if the rule names nothing.
func (r *GPUSliceRule) Profile(vendor pci.ID) string {
	if vendor != pci.VendorNVIDIA || r.NVIDIA == nil {
		return ""
	}
	return r.NVIDIA.VGPUType
}

// Memory returns the memory of a slice of the vendor's GPU in bytes; 0 if the rule does not say it. A vGPU type's name ends in its
// memory in GB and the letter of its series: "NVIDIA L40S-12Q" (NVIDIA's vGPU user guide, "Virtual GPU Types").
func (r *GPUSliceRule) Memory(vendor pci.ID) uint64 {
	if vendor == pci.VendorIntel && r.Intel != nil && r.Intel.MemoryMiB != nil {
		return uint64(*r.Intel.MemoryMiB) << 20
	}
	name := strings.TrimRight(r.Profile(vendor), "ABCQ")
	if name == r.Profile(vendor) {
		return 0
	}
	// The last number: a MIG-backed type has its count of GPU slices before the memory, as in "GRID A100-3-20C".
	gib, err := strconv.ParseUint(name[strings.LastIndex(name, "-")+1:], 10, 16)
	if err != nil {
		return 0
	}
	return gib << 30
}

// GPUMatch is a condition for GPUs, by their physical functions. Every set field must match, and at least one must be set. A list
// matches if one of its entries does.
type GPUMatch struct {
	// Vendors and Devices are ids of four hexadecimal digits. Devices needs Vendors.
	Vendors []pci.ID `json:"vendors,omitempty"`
	Devices []pci.ID `json:"devices,omitempty"`
	// Addresses are those of the physical functions.
	Addresses []pci.Address `json:"addresses,omitempty"`
}

// checkSlices adds the problems of the rules for slices.
func (c *NodeConfig) checkSlices(p *problems) {
	seen := map[string]int{}
	for i := range c.GPUSlices {
		r, at := &c.GPUSlices[i], index("gpuSlices", i)
		if first, ok := seen[r.Name]; ok && r.Name != "" {
			p.add(at+".name", "%s is the name of %s too; no two rules may have one name", show(r.Name), index("gpuSlices", first))
		} else {
			seen[r.Name] = i
		}
		r.Match.check(p, at+".match")
		r.AMD.check(p, at+".amd")
		r.Intel.check(p, at+".intel")
		r.NVIDIA.check(p, at+".nvidia")
	}
}

// mostMemoryMiB is more than any GPU has: 1 TiB.
const mostMemoryMiB = 1 << 20

func (s *AMDSlices) check(p *problems, path string) {
	if s == nil {
		return
	}
	if s.Profile == "" && s.MemoryMiB == nil {
		p.add(path, "empty, so that it refuses nothing; set profile, memoryMiB, or both, or remove it")
	}
	if s.Profile != "" && !IsPartition(s.Profile) {
		p.add(path+".profile", "%s is not a partition of compute dies and memory, such as CPX/NPS4; cat spatial_partition_mode and memory_partition_mode of the "+
			"GPU in /sys/bus/pci/devices print the present one", show(s.Profile))
	}
	if m := s.MemoryMiB; m != nil && (*m < 1 || *m > mostMemoryMiB) {
		p.add(path+".memoryMiB", "%d is not from 1 to %d", *m, mostMemoryMiB)
	}
}

func (s *IntelSlices) check(p *problems, path string) {
	if s == nil {
		return
	}
	for _, v := range []struct {
		name  string
		value *int
		most  int
	}{
		{"execQuantumMs", s.ExecQuantumMs, 100_000},
		{"preemptTimeoutUs", s.PreemptTimeoutUs, 100_000_000},
		{"memoryMiB", s.MemoryMiB, mostMemoryMiB},
	} {
		if v.value != nil && (*v.value < 1 || *v.value > v.most) {
			p.add(path+"."+v.name, "%d is not from 1 to %d", *v.value, v.most)
		}
	}
	if s.Priority != "" && s.Priority != SliceLow && s.Priority != SliceNormal {
		p.add(path+".priority", "%s is not Low or Normal", show(string(s.Priority)))
	}
}

func (s *NVIDIASlices) check(p *problems, path string) {
	if s == nil {
		return
	}
	if strings.TrimSpace(s.VGPUType) == "" {
		p.add(path+".vgpuType", "missing; `nvidia-smi vgpu -s` lists the types of the node's GPUs (\"NVIDIA L40S-12Q\")")
	}
	if s.Instances < 1 || s.Instances > 64 {
		p.add(path+".instances", "%d is not from 1 to 64; `nvidia-smi vgpu -s -v` prints Max Instances for each type", s.Instances)
	}
}

func (m *GPUMatch) check(p *problems, path string) {
	if m.Vendors == nil && m.Devices == nil && m.Addresses == nil {
		p.add(path, "empty; set at least one of vendors, devices, addresses (addresses: [\"0000:3b:00.0\"] for one GPU)")
	}
	for _, list := range []struct {
		name  string
		empty bool
	}{
		{"vendors", m.Vendors != nil && len(m.Vendors) == 0},
		{"devices", m.Devices != nil && len(m.Devices) == 0},
		{"addresses", m.Addresses != nil && len(m.Addresses) == 0},
	} {
		if list.empty {
			p.add(path+"."+list.name, "the list is empty, so that the rule matches nothing; remove it or fill it")
		}
	}
	if len(m.Devices) > 0 && len(m.Vendors) == 0 {
		p.add(path+".devices", "needs vendors: a device id means something only to its vendor")
	}
}

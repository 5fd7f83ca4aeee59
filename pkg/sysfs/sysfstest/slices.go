package sysfstest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// VGPUType is a vGPU type of a GPU's driver.
type VGPUType struct {
	ID   int
	Name string
	// GiB is the memory of one vGPU, and Max how many fit on a GPU. All vGPUs of a GPU have one size.
	GiB, Max int
	// MIG says that each vGPU needs a GPU instance, of which the GPU has Instances. The type is on the list without one, too.
	MIG       bool
	Instances int
}

// vgpuHost is NVIDIA's driver with vGPUs on the VFs of one GPU: what creatable_vgpu_types lists shrinks with each vGPU, and a type
// that is not on the list is refused. No document of the kernel describes these files; see the reports in
// NVIDIA/vgpu-device-manager and kubevirt-gpu-device-plugin.
type vgpuHost struct {
	k     *Kernel
	types []VGPUType

	mu  sync.Mutex
	now map[pci.Address]VGPUType
}

const (
	currentType    = "nvidia/current_vgpu_type"
	creatableTypes = "nvidia/creatable_vgpu_types"
)

// AddVGPUHost adds an NVIDIA GPU with VFs for vGPUs of the types.
func (k *Kernel) AddVGPUHost(bus uint8, vfs int, types ...VGPUType) (pf pci.Address, all []pci.Address) {
	k.AddRootPort(bus)
	h := &vgpuHost{k: k, types: types, now: map[pci.Address]VGPUType{}}
	k.AddDriver("nvidia", Driver{SRIOV: true, ServesVFs: true, Files: h.files, IDs: []Match{{Vendor: 0x10de}}})
	gpu := GPU(at(bus, 0, 0))
	gpu.Capabilities.SRIOV = &pci.SRIOV{TotalVFs: uint16(vfs), VFDevice: gpu.Device}
	gpu.SRIOV = &SRIOV{VFs: vfs, Offset: 4, BARs: gpu.BARs[:1]}
	k.Add(gpu)
	return gpu.Address, k.VFs(gpu.Address)
}

// files are those of one function.
func (h *vgpuHost) files(a pci.Address, pf *pci.Address) []File {
	if pf == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.now, a) // a boot, or new VFs
	h.k.unwedge(a)
	return []File{
		{Name: currentType, Content: "0", Store: func(value string) (string, error) { return h.store(a, value) }},
		{Name: creatableTypes, Content: h.creatable()},
	}
}

// store makes the VF a vGPU of the type, or ends that.
func (h *vgpuHost) store(a pci.Address, value string) (string, error) {
	id, err := strconv.Atoi(value)
	if err != nil {
		return "", unix.EINVAL
	}
	h.mu.Lock()
	_, has := h.now[a]
	i := slices.IndexFunc(h.types, func(t VGPUType) bool { return t.ID == id && h.fits(t) })
	switch {
	case h.k.isWedged(a):
		h.mu.Unlock()
		return "", unix.EBUSY
	case id == 0:
		delete(h.now, a)
	case has, i < 0:
		h.mu.Unlock()
		return "", unix.EINVAL
	case h.types[i].MIG && len(h.now) >= h.types[i].Instances:
		h.mu.Unlock()
		return "", unix.EIO
	default:
		h.now[a] = h.types[i]
	}
	list, others := h.creatable(), h.k.VFsBeside(a)
	h.mu.Unlock()
	for _, vf := range others {
		h.k.SetFile(vf, creatableTypes, list)
	}
	return value, nil
}

// wedges are VFs on NVIDIA's driver that take no type until the VFs are made again.
type wedges struct {
	mu  sync.Mutex
	vfs map[pci.Address]bool
}

// WedgeVGPU wedges a VF, as a VM can that is killed while it starts (kernel/hypeman, lib/devices/GPU.md): the driver takes no type for it,
// and does not end the vGPU, until the VFs of its GPU are made again.
func (k *Kernel) WedgeVGPU(vf pci.Address) {
	k.wedges.mu.Lock()
	defer k.wedges.mu.Unlock()
	if k.wedges.vfs == nil {
		k.wedges.vfs = map[pci.Address]bool{}
	}
	k.wedges.vfs[vf] = true
}

func (k *Kernel) isWedged(vf pci.Address) bool {
	k.wedges.mu.Lock()
	defer k.wedges.mu.Unlock()
	return k.wedges.vfs[vf]
}

func (k *Kernel) unwedge(vf pci.Address) {
	k.wedges.mu.Lock()
	defer k.wedges.mu.Unlock()
	delete(k.wedges.vfs, vf)
}

// fits reports whether another vGPU of the type fits on the GPU.
func (h *vgpuHost) fits(t VGPUType) bool {
	for _, other := range h.now {
		if other.GiB != t.GiB {
			return false
		}
	}
	return len(h.now) < t.Max
}

// creatable lists the types of which one more vGPU fits.
func (h *vgpuHost) creatable() string {
	lines := []string{"ID    : vGPU Name"}
	for _, t := range h.types {
		if h.fits(t) {
			lines = append(lines, fmt.Sprintf("%-6d: %s", t.ID, t.Name))
		}
	}
	return strings.Join(lines, "\n")
}

// VFsBeside returns all VFs of the PF that has a VF.
func (k *Kernel) VFsBeside(vf pci.Address) []pci.Address {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.functions[vf]
	if f == nil || f.pf == nil {
		return nil
	}
	all := make([]pci.Address, len(f.pf.vfs))
	for i, other := range f.pf.vfs {
		all[i] = other.Address
	}
	return all
}

// AddXeHost adds an Intel GPU on driver xe with VFs, each with its values in sriov_admin of the PF
// (Documentation/ABI/testing/sysfs-driver-intel-xe-sriov). The firmware rounds memory up to 2 MiB.
func (k *Kernel) AddXeHost(bus uint8, vfs int) (pf pci.Address, all []pci.Address) {
	k.AddRootPort(bus)
	gpu := Function{
		Address: at(bus, 0, 0), Vendor: 0x8086, Device: 0xe211, SubVendor: 0x8086, SubDevice: 0x1100, Class: pci.ClassVGA << 8, Driver: "xe",
		ResetMethods: []string{"flr"},
		Capabilities: pci.Capabilities{
			Express: &pci.Express{Type: pci.Endpoint, FLR: true}, MSIX: true, SRIOV: &pci.SRIOV{TotalVFs: uint16(vfs), VFDevice: 0xe211},
		},
		SRIOV: &SRIOV{VFs: vfs},
	}
	k.AddDriver("xe", Driver{SRIOV: true, NoChildren: true, IDs: []Match{MatchID(0x8086, 0xe211)}, Files: func(_ pci.Address, pf *pci.Address) []File {
		if pf != nil {
			return nil
		}
		return xeFiles(vfs)
	}})
	k.Add(gpu)
	return gpu.Address, k.VFs(gpu.Address)
}

// AddGIMHost adds an MI300X on AMD's driver gim with VFs, divided as the driver's files say.
func (k *Kernel) AddGIMHost(bus uint8, vfs int, compute, memory string) (pf pci.Address, all []pci.Address) {
	k.AddRootPort(bus)
	const accelerator = 0x120000
	gpu := Function{
		Address: at(bus, 0, 0), Vendor: 0x1002, Device: 0x74a1, SubVendor: 0x1002, SubDevice: 0x74a1, Class: accelerator, Driver: "gim",
		ResetMethods: []string{"flr"},
		Capabilities: pci.Capabilities{
			Express: &pci.Express{Type: pci.Endpoint, FLR: true}, MSIX: true, SRIOV: &pci.SRIOV{TotalVFs: 8, VFDevice: 0x74b5},
		},
		SRIOV: &SRIOV{VFs: vfs},
	}
	k.AddDriver("gim", Driver{SRIOV: true, NoChildren: true, IDs: []Match{MatchID(0x1002, 0x74a1)}, Files: func(_ pci.Address, pf *pci.Address) []File {
		if pf != nil {
			return nil
		}
		return []File{
			{Name: "spatial_partition_mode", Content: compute},
			{Name: "memory_partition_mode", Content: "memory_partition_mode: " + memory + "\nnuma_count: 1\nNUMA0 type=1 start=0x0 end=0x2fffffffff"},
		}
	}})
	k.Add(gpu)
	return gpu.Address, k.VFs(gpu.Address)
}

// XeValue is the name of a file of the PF of the n-th VF, from 1.
func XeValue(n int, name string) string { return fmt.Sprintf("sriov_admin/vf%d/profile/%s", n, name) }

// XeStop is the name of the file that stops the n-th VF, from 1. Here it shows that it was written.
func XeStop(n int) string { return fmt.Sprintf("sriov_admin/vf%d/stop", n) }

func xeFiles(vfs int) []File {
	number := func(value string) (string, error) {
		if _, err := strconv.ParseUint(value, 10, 64); err != nil {
			return "", unix.EINVAL
		}
		return value, nil
	}
	var all []File
	for n := 1; n <= vfs; n++ {
		all = append(all,
			File{Name: XeValue(n, "exec_quantum_ms"), Content: "0", Store: number},
			File{Name: XeValue(n, "preempt_timeout_us"), Content: "0", Store: number},
			File{Name: XeValue(n, "sched_priority"), Content: "[low] normal", Store: xePriority},
			File{Name: XeValue(n, "vram_quota"), Content: "0", Store: xeMemory},
			File{Name: XeStop(n), Store: number},
		)
	}
	return all
}

func xePriority(value string) (string, error) {
	switch value {
	case "low":
		return "[low] normal", nil
	case "normal":
		return "low [normal]", nil
	}
	return "", unix.EINVAL
}

func xeMemory(value string) (string, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return "", unix.EINVAL
	}
	const unit = 2 << 20
	return strconv.FormatUint((n+unit-1)/unit*unit, 10), nil
}

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// runtimeTopologyChecks are about the topology of a VM's devices and memory, for speed. None is about isolation.
func runtimeTopologyChecks() []Check {
	return []Check{
		{ID: "RT-038", Judge: guestHasGPUNodes},
		{ID: "RT-039", Judge: reachPeers},
	}
}

// guestHasGPUNodes is about Kata's Go runtime: the Rust runtime has no guest NUMA topology.
func guestHasGPUNodes(n *facts.Node) Answer {
	hasTopology := func(n *facts.Node, h *runtimes.Handler, k *runtimes.Kata) bool {
		return runtimes.TakesDevices(n, h, k) && !h.IsRust()
	}
	return ofChosen(hasTopology, func(n *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
		enabled, mapping := k.Hypervisor("enable_numa"), k.Hypervisor("numa_mapping")
		seen := says(enabled, mapping)
		// Kata chooses the nodes by the VM's devices where it has no mapping, and ignores one that is not enabled.
		if !enabled.On() || len(mapping.List()) == 0 {
			return "", seen
		}
		for _, f := range assignableGPUs(n) {
			covers := func(nodes string) bool { return inList(nodes, *f.NUMANode) }
			if f.NUMANode != nil && !slices.ContainsFunc(mapping.List(), covers) {
				return fmt.Sprintf("numa_mapping %q has no entry with NUMA node %d, on which %s is: its VM has memory of other nodes only", mapping.List(), *f.NUMANode, f.Address), seen
			}
		}
		return "", seen
	})(n)
}

// reachPeers checks running VMs. Kernels before 6.19 pin the memory that they map for iommufd, and can't pin BARs. Later kernels
// map BARs as dma-bufs, if QEMU asks for it. VFIO's containers of groups have always mapped BARs.
func reachPeers(n *facts.Node) Answer {
	holdings, _ := n.Holdings()
	release := n.Read("proc/sys/kernel/osrelease")
	vms := 0 // that have several such devices
	found := over(openByVM(holdings), func(open []facts.OpenHandle) Answer {
		var byGroup, byIOMMUFD []pci.Address
		for _, h := range open {
			if strings.HasPrefix(h.Node, vfio.DeviceNode("")) {
				byIOMMUFD = append(byIOMMUFD, h.Devices...)
			} else {
				byGroup = append(byGroup, h.Devices...)
			}
		}
		devices := peers(n, byIOMMUFD)
		if len(devices) == 0 {
			if len(peers(n, byGroup)) > 0 {
				vms++
			}
			return nil
		}
		vms++
		return byIOMMUFDOnly(n, open, devices, release)
	})
	if hidden := unseenHolders(n, "which devices VMs have"); len(hidden) > 0 {
		return append(found, hidden...)
	}
	return orPassWith(found, vms, "VM", "no VM has a GPU and another GPU or a NIC", []facts.Fact{release})
}

// openByVM groups open handles by the VMs' processes.
func openByVM(all []facts.OpenHandle) [][]facts.OpenHandle {
	var vms [][]facts.OpenHandle
	for _, h := range all { // by PID
		switch last := len(vms) - 1; {
		case !h.Process.VM:
		case last >= 0 && vms[last][0].Process.PID == h.Process.PID:
			vms[last] = append(vms[last], h)
		default:
			vms = append(vms, []facts.OpenHandle{h})
		}
	}
	return vms
}

// peers returns the GPUs and NICs among functions, if there are several and one of them is a GPU. GPUs access each other, and NICs
// access GPUs.
func peers(n *facts.Node, held []pci.Address) []*device.Function {
	slices.SortFunc(held, pci.Address.Compare)
	var found []*device.Function
	gpus := 0
	for _, f := range functionsAt(n, slices.Compact(held)) {
		switch f.Type {
		case device.GPU, device.GPUVF:
			gpus++
			found = append(found, f)
		case device.PFType, device.VFType:
			found = append(found, f)
		default:
		}
	}
	if gpus == 0 || len(found) < 2 {
		return nil
	}
	return found
}

// byIOMMUFDOnly judges one VM that has the devices open by their own nodes, not by group nodes.
func byIOMMUFDOnly(n *facts.Node, open []facts.OpenHandle, devices []*device.Function, release facts.Fact) Answer {
	if !release.OK() {
		return unknown("which kernel runs", release)
	}
	seen := []facts.Fact{release}
	for _, h := range open {
		seen = append(seen, h.Fact())
	}
	process := fmt.Sprintf("pid %d", open[0].Process.PID)
	text := fmt.Sprintf("the VM of %s has %s by iommufd, ", &open[0].Process.Process, joinNames(words(addresses(devices))))
	kernel := facts.Kernel{Release: release.Value, Version: n.Read("proc/version").Value}
	if facts.MapsPeers().In(kernel) == facts.ChangeMissing {
		return fail(text+"for which kernel "+release.Value+" maps no BARs: they have no peer-to-peer", seen...).object(process).reaching(addresses(devices)...)
	}
	return say(finding.Manual, text+"for which this kernel maps BARs if QEMU asks: `PCI BAR?` in Kata's log says that it could not", seen).object(process)
}

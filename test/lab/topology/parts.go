package topology

import "fmt"

// QEMU's names of PCIe ports.
const (
	rootPort       = "pcie-root-port"
	upstreamPort   = "x3130-upstream"
	downstreamPort = "xio3130-downstream"
)

// noIOWindow keeps an I/O window from being reserved for hotplug: there is room for some fifteen of them, and the
// firmware stops without a word when there are more.
const noIOWindow = "io-reserve=0"

// RootPort is a root port with ACS and what is plugged into it.
func RootPort(id string, below ...Part) Part {
	return Part{ID: id, Model: rootPort, Bridge: true, Below: below, Properties: []string{noIOWindow}}
}

// RootPortWithoutACS is a root port that lets its device reach others: they share its group.
func RootPortWithoutACS(id string, below ...Part) Part {
	return Part{ID: id, Model: rootPort, Bridge: true, Below: below, Properties: []string{noIOWindow, "disable-acs=on"}}
}

// Switch is a PCIe switch: an upstream port with a downstream port for each device. QEMU's switch has no ACS, so
// each device shares a group with its port (Linux 6.12; later kernels put the whole switch into one).
func Switch(id string, devices ...Part) Part {
	up := Part{ID: id, Model: upstreamPort, Bridge: true}
	for i, device := range devices {
		up.Below = append(up.Below, Part{
			ID: fmt.Sprintf("%s-port%d", id, i), Model: downstreamPort, Bridge: true, Slot: uint8(i), Below: []Part{device},
		})
	}
	return up
}

// PCIBridge is a bridge from PCIe to conventional PCI: all behind it uses its requester ID and is one group with it.
// Slots begin at 1.
func PCIBridge(id string, devices ...Part) Part {
	bridge := Part{ID: id, Model: "pcie-pci-bridge", Bridge: true}
	for i, device := range devices {
		device.Slot = uint8(i + 1)
		bridge.Below = append(bridge.Below, device)
	}
	return bridge
}

// IGB is an Intel 82576 physical function with up to seven virtual ones, connected to the network backend.
func IGB(id, mac, network string) Part {
	return Part{ID: id, Model: "igb", Properties: []string{"mac=" + mac, "netdev=" + network, "romfile="}}
}

// NVMe is an NVMe controller with room for vfs virtual functions, in the NVMe subsystem backend of that name.
func NVMe(id, subsystem string, vfs int) Part {
	return Part{ID: id, Model: "nvme", Properties: []string{
		"serial=" + id, "subsys=" + subsystem,
		fmt.Sprintf("sriov_max_vfs=%d", vfs),
		fmt.Sprintf("sriov_vq_flexible=%d", 2*vfs),
		fmt.Sprintf("sriov_vi_flexible=%d", vfs),
		fmt.Sprintf("max_ioqpairs=%d", 2*vfs+2),
		fmt.Sprintf("msix_qsize=%d", vfs+1),
	}}
}

// Display is a bochs-display, class 0x0380: a GPU stand-in that has a driver with a DRM device.
func Display(id string) Part { return Part{ID: id, Model: "bochs-display"} }

// ATIVGA is a display with AMD's vendor ID, class 0x0300.
func ATIVGA(id string) Part { return Part{ID: id, Model: "ati-vga", Properties: []string{"romfile="}} }

// VirtioGPU is a display with FLR.
func VirtioGPU(id string) Part { return Part{ID: id, Model: "virtio-gpu-pci"} }

// DisplayWithAudio is a display and, as the next function of the same device, an audio controller: one group.
func DisplayWithAudio(id, audio string) []Part {
	return []Part{
		{ID: id, Model: "secondary-vga", Properties: []string{"multifunction=on"}},
		{ID: audio, Model: "intel-hda", Function: 1},
	}
}

// E1000E is a PCIe network interface without virtual functions or a connection.
func E1000E(id string) Part { return Part{ID: id, Model: "e1000e", Properties: []string{"romfile="}} }

// E1000 is a conventional PCI network interface.
func E1000(id string) Part { return Part{ID: id, Model: "e1000", Properties: []string{"romfile="}} }

// Edu is a conventional PCI device that no driver knows.
func Edu(id string) Part { return Part{ID: id, Model: "edu"} }

// TestDevice is a device with a 64-bit prefetchable BAR of that many GiB, as compute cards have.
func TestDevice(id string, gib int) Part {
	return Part{ID: id, Model: "pci-testdev", Properties: []string{fmt.Sprintf("membar=%dG", gib)}}
}

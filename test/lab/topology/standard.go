package topology

import "fmt"

// The functions of the standard topology, by their addresses in the machine.
const (
	// NUMA node 0.
	PF0           = "0000:21:00.0" // igb, seven VFs
	GPU0          = "0000:22:00.0" // bochs-display, alone in its group
	NVMe0         = "0000:23:00.0" // NVMe, eight VFs
	Switch0       = "0000:24:00.0" // the upstream port of a PCIe switch without ACS
	GPU4          = "0000:26:00.0" // bochs-display behind the switch, one group with
	GPU4Port      = "0000:25:00.0" // its downstream port
	SwitchNIC     = "0000:27:00.0" // e1000e behind the switch, one group with
	SwitchNICPort = "0000:25:01.0" // its downstream port

	// NUMA node 1.
	PF1       = "0000:61:00.0" // igb, seven VFs
	GPU1      = "0000:62:00.0" // VGA display, one group with
	GPU1Audio = "0000:62:00.1" // its audio function
	Bridge0   = "0000:63:00.0" // a PCIe-to-PCI bridge, with a driver (shpchp), one group with
	Edu0      = "0000:64:01.0" // no driver
	NIC1      = "0000:64:02.0" // e1000
	NIC0      = "0000:65:00.0" // e1000e, alone
	GPU2      = "0000:66:00.0" // ati-vga: vendor 1002
	GPU3      = "0000:67:00.0" // virtio-gpu, with FLR
	BigBAR    = "0000:68:00.0" // a BAR of 4 GiB
	GPU5      = "0000:69:00.0" // bochs-display under a root port without ACS, one group with
	GPU5Port  = "0000:60:07.0" // that port
)

// The network behind PF0 and PF1: one segment, with QEMU's gateway on it.
const (
	PF0MAC  = "52:54:00:aa:00:01"
	PF1MAC  = "52:54:00:aa:00:02"
	Gateway = "10.9.0.2"
	// Prefix is the network's prefix length.
	Prefix = 24
)

// VF is the address of a PF's virtual function: from bus position 0x80 in steps of two for igb, from the next
// function on for NVMe.
func VF(pf string, index int) string {
	first, step := 0x80, 2
	if pf == NVMe0 {
		first, step = 1, 1
	}
	position := first + step*index
	return fmt.Sprintf("%s:%02x.%d", pf[:len("0000:21")], position>>3, position&7)
}

// Standard is the hierarchy that most tests run on: two root complexes on two NUMA nodes, groups of every kind.
func Standard() Topology {
	return Topology{
		Backends: standardBackends(),
		Roots: []Root{
			{ID: "px0", Bus: 0x20, Node: 0, Ports: []Part{
				RootPort("a1", IGB("pf0", PF0MAC, "hub0")),
				RootPort("a2", Display("gpu0")),
				RootPort("a3", NVMe("nvme0", "subsys0", 8)),
				RootPort("a4", Switch("switch0", Display("gpu4"), E1000E("switchnic"))),
			}},
			{ID: "px1", Bus: 0x60, Node: 1, Ports: []Part{
				RootPort("b1", IGB("pf1", PF1MAC, "hub1")),
				RootPort("b2", DisplayWithAudio("gpu1", "gpu1audio")...),
				RootPort("b3", PCIBridge("bridge0", Edu("edu0"), E1000("nic1"))),
				RootPort("b4", E1000E("nic0")),
				RootPort("b5", ATIVGA("gpu2")),
				RootPort("b6", VirtioGPU("gpu3")),
				RootPort("b7", TestDevice("bigbar", 4)),
				RootPortWithoutACS("b8", Display("gpu5")),
			}},
		},
	}
}

// WithNamespace is the standard topology, whose NVMe0 has a namespace of 8 MiB. It reads as zeros, and what is written to it
// lasts until QEMU ends. It is not shared: the virtual functions don't have it.
func WithNamespace() Topology {
	t := Standard()
	t.Backends = append(t.Backends, "-drive", "if=none,id=namespace0,driver=null-co,size=8M,read-zeroes=on,snapshot=on")
	t.Volumes = append(t.Volumes, "-device", "nvme-ns,id=nvme0n1,bus=nvme0,nsid=1,drive=namespace0,shared=off")
	return t
}

// standardBackends are one network hub with QEMU's user network, and an NVMe subsystem.
func standardBackends() []string {
	return []string{
		"-netdev", "user,id=gateway,net=10.9.0.0/24",
		"-netdev", "hubport,id=hubgateway,hubid=0,netdev=gateway",
		"-netdev", "hubport,id=hub0,hubid=0",
		"-netdev", "hubport,id=hub1,hubid=0",
		"-device", "nvme-subsys,id=subsys0,nqn=subsys0",
	}
}

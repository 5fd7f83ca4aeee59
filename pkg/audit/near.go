package audit

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Neighbours are what belongs together with a GPU or a NIC.
type Neighbours struct {
	// Nearness says what they have in common: switch, root, numa.
	Nearness string `json:"nearness"`
	// Addresses are, for a GPU, those of the PFs that are nearest to it, and for a
	// PF those of the nearest of the GPUs that have no nearer one.
	Addresses []pci.Address `json:"addresses"`
}

// Words returns the neighbours in one line: "0000:3d:00.0, same switch".
func (n *Neighbours) Words() string {
	texts := make([]string, len(n.Addresses))
	for i, a := range n.Addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ") + ", " + n.common()
}

// Brief names the first neighbour and how many more there are, where Words would
// be too long: "0000:3d:00.0 +1, same switch".
func (n *Neighbours) Brief() string {
	text := n.Addresses[0].String()
	if more := len(n.Addresses) - 1; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text + ", " + n.common()
}

// common says what they have in common, in words.
func (n *Neighbours) common() string {
	return map[string]string{
		device.SameSwitch.String(): "same switch", device.SameRoot.String(): "same root", device.SameNUMANode.String(): "same NUMA node",
	}[n.Nearness]
}

// pairUp sets what is near to each GPU and each NIC.
func (inv *Inventory) pairUp() {
	var gpus, nics []*Device
	for i := range inv.Devices {
		switch d := &inv.Devices[i]; {
		case d.Type == device.GPU:
			gpus = append(gpus, d)
		case d.Type == device.PFType && d.Class.Base() == pci.BaseNetwork:
			nics = append(nics, d)
		}
	}
	nearest := map[*Device]device.Nearness{}
	for _, gpu := range gpus {
		nearest[gpu] = device.Far
		for _, nic := range nics {
			nearest[gpu] = min(nearest[gpu], device.Near(gpu.Function, nic.Function))
		}
		gpu.Near = neighbours(nearest[gpu], nics, func(nic *Device) bool { return device.Near(gpu.Function, nic.Function) == nearest[gpu] })
	}
	for _, nic := range nics {
		serves := func(gpu *Device) bool { return device.Near(gpu.Function, nic.Function) == nearest[gpu] }
		closest := device.Far
		for _, gpu := range gpus {
			if serves(gpu) {
				closest = min(closest, nearest[gpu])
			}
		}
		nic.Near = neighbours(closest, gpus, func(gpu *Device) bool { return serves(gpu) && nearest[gpu] == closest })
	}
}

// neighbours returns those of the devices that are near; nil for none.
func neighbours(n device.Nearness, devices []*Device, near func(*Device) bool) *Neighbours {
	if n == device.Far {
		return nil
	}
	all := &Neighbours{Nearness: n.String()}
	for _, d := range devices {
		if near(d) {
			all.Addresses = append(all.Addresses, d.Address)
		}
	}
	return all
}

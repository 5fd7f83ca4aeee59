package sysfstest

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// AddGPUAndNIC adds a switch on the bus, with a GPU and a NIC behind it, on the
// third and fourth bus from there, and the NIC's VFs.
func (k *Kernel) AddGPUAndNIC(bus uint8, vfs int) (gpu, pf pci.Address, all []pci.Address) {
	k.AddRoot(Root{Bus: bus - 1})
	k.AddPort(Port{Address: at(bus-1, 1, 0), Secondary: bus, Subordinate: bus + 3})
	k.AddSwitch(Switch{Upstream: at(bus, 0, 0), Secondary: bus + 1, Ports: []Port{
		{Address: at(bus+1, 0, 0), Secondary: bus + 2}, {Address: at(bus+1, 1, 0), Secondary: bus + 3},
	}})
	k.addIgbvf()
	nic := NIC(at(bus+3, 0, 0))
	nic.SRIOV.VFs = vfs
	k.Add(GPU(at(bus+2, 0, 0)), nic)
	return at(bus+2, 0, 0), nic.Address, k.VFs(nic.Address)
}

package sysfstest

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// Scale adds n functions that can be assigned, for measurements: PFs with seven
// VFs each below switches, two PFs to a switch and a GPU for every sixteen of
// them, spread over domains of their own from 1 up and over two NUMA nodes.
// It returns their addresses; ports come on top. 4,096 functions are a quarter
// of a million files and links: seconds on a tmpfs, maybe a minute on a disk.
func (k *Kernel) Scale(n int) []pci.Address {
	k.addIgbvf()
	s := &scale{k: k, want: n}
	for domain := uint32(1); len(s.made) < n; domain++ {
		s.domain(domain)
	}
	return s.made
}

// A scale is a run of [Kernel.Scale].
type scale struct {
	k    *Kernel
	want int
	made []pci.Address
}

// busesPerSwitch are the buses that one switch and what is behind it take:
// its upstream port's, its own, and three below it.
const busesPerSwitch = 5

// domain fills one domain with switches.
func (s *scale) domain(domain uint32) {
	s.k.AddRoot(Root{Domain: domain, NUMA: int(domain) % 2})
	for port := uint8(0); port < 32 && len(s.made) < s.want; port++ {
		bus := 1 + port*busesPerSwitch
		s.k.AddPort(Port{
			Address:   pci.Address{Domain: domain, Device: port},
			Secondary: bus, Subordinate: bus + busesPerSwitch - 1,
		})
		s.behind(domain, bus)
	}
}

// behind adds a switch at the bus, with a GPU and two PFs behind it.
func (s *scale) behind(domain uint32, bus uint8) {
	ports := make([]Port, 3)
	for i := range ports {
		ports[i] = Port{
			Address:   pci.Address{Domain: domain, Bus: bus + 1, Device: uint8(i)},
			Secondary: bus + 2 + uint8(i),
		}
	}
	s.k.AddSwitch(Switch{Upstream: pci.Address{Domain: domain, Bus: bus}, Secondary: bus + 1, Ports: ports})
	s.add(GPU(pci.Address{Domain: domain, Bus: bus + 2}), 0)
	s.add(NIC(pci.Address{Domain: domain, Bus: bus + 3}), 7)
	s.add(NIC(pci.Address{Domain: domain, Bus: bus + 4}), 7)
}

// add adds a function with as many VFs as are still wanted.
func (s *scale) add(f Function, vfs int) {
	left := s.want - len(s.made)
	if left <= 0 {
		return
	}
	if f.SRIOV != nil {
		f.SRIOV.VFs = min(vfs, left-1)
	}
	s.k.Add(f)
	s.made = append(s.made, f.Address)
	s.made = append(s.made, s.k.VFs(f.Address)...)
}

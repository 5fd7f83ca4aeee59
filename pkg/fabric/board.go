package fabric

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Map says which PCI function each GPU of a board is. No file of the kernel says it: NVIDIA's driver knows it while it has the GPUs, and
// the order of PCI addresses differs from that of the modules.
type Map struct {
	// Product is the machine's name in its firmware (DMI) when the map was captured. The map of another machine is not used.
	Product string  `json:"product,omitempty"`
	Places  []Place `json:"modules"`
}

// Place is one GPU of a [Map].
type Place struct {
	Module  int         `json:"module"`
	Address pci.Address `json:"address"`
	// Serial is the GPU's PCIe serial number, and UUID the name that the driver gives the GPU. Each is empty if it is unknown.
	Serial string `json:"serialNumber,omitempty"`
	UUID   string `json:"uuid,omitempty"`
}

// Present is a GPU that the node has now.
type Present struct {
	Address pci.Address
	Serial  string
}

// MapError says why a map can't be used, and what to do.
type MapError struct{ Text string }

func (e *MapError) Error() string { return e.Text }

func mapError(format string, args ...any) error { return &MapError{Text: fmt.Sprintf(format, args...)} }

// Check compares a map with the machine: with its product, if both products are known, and with its GPUs.
func (m *Map) Check(product string, gpus []Present) error {
	if m.Product != "" && product != "" && m.Product != product {
		return mapError("the map of modules is of a %q, and this machine is a %q", m.Product, product)
	}
	modules, addresses := map[int]bool{}, map[pci.Address]bool{}
	for _, p := range m.Places {
		if modules[p.Module] || addresses[p.Address] {
			return mapError("the map of modules has module %d or %s twice", p.Module, p.Address)
		}
		modules[p.Module], addresses[p.Address] = true, true
		i := slices.IndexFunc(gpus, func(g Present) bool { return g.Address == p.Address })
		switch {
		case i < 0:
			return mapError("the map of modules has module %d at %s, where this node has no GPU of NVIDIA", p.Module, p.Address)
		case p.Serial != "" && gpus[i].Serial != "" && p.Serial != gpus[i].Serial:
			return mapError("the map of modules has the GPU with serial number %s at %s, and now %s is there", p.Serial, p.Address, gpus[i].Serial)
		}
	}
	return nil
}

// place returns where a module is; nil if the map does not have it.
func (m *Map) place(module int) *Place {
	if m == nil {
		return nil
	}
	i := slices.IndexFunc(m.Places, func(p Place) bool { return p.Module == module })
	if i < 0 {
		return nil
	}
	return &m.Places[i]
}

// Board has the GPUs of a fabric and its partitions. It is immutable.
type Board struct {
	places     []Place // by module
	partitions List    // in the order of [Board.Partitions]
}

// NewBoard finds the PCI functions of the GPUs in a list by a map. The map may be nil if Fabric Manager lists the addresses itself, as on
// A100. NewBoard returns an error for a GPU whose address is in neither the list nor the map, and for a GPU whose address differs between
// them.
func NewBoard(l List, m *Map) (*Board, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	known := map[int]Place{}
	for i := range l {
		for _, g := range l[i].GPUs {
			p, err := locate(&g, m)
			if err != nil {
				return nil, err
			}
			if had, ok := known[g.Module]; ok && had.Address != p.Address {
				return nil, mapError("Fabric Manager has module %d at %s, and at %s", g.Module, had.Address, p.Address)
			}
			known[g.Module] = p
		}
	}
	b := &Board{partitions: slices.Clone(l)}
	for _, p := range known {
		b.places = append(b.places, p)
	}
	slices.SortFunc(b.places, func(x, y Place) int { return cmp.Compare(x.Module, y.Module) })
	for i, p := range b.places {
		if j := slices.IndexFunc(b.places, func(o Place) bool { return o.Address == p.Address }); j < i {
			return nil, mapError("modules %d and %d are both at %s", b.places[j].Module, p.Module, p.Address)
		}
	}
	b.sort()
	return b, nil
}

// locate finds the PCI function of a GPU.
func locate(g *GPU, m *Map) (Place, error) {
	mapped := m.place(g.Module)
	said, has, err := g.address()
	switch {
	case err != nil:
		return Place{}, err
	case mapped == nil && !has:
		return Place{}, mapError("no map says which PCI function module %d is", g.Module)
	case mapped == nil:
		return Place{Module: g.Module, Address: said, UUID: g.UUID}, nil
	case has && said != mapped.Address:
		return Place{}, mapError("the map of modules has module %d at %s, and Fabric Manager at %s", g.Module, mapped.Address, said)
	case mapped.UUID != "" && g.UUID != "" && mapped.UUID != g.UUID:
		return Place{}, mapError("the map of modules has module %d as %s, and Fabric Manager as %s", g.Module, mapped.UUID, g.UUID)
	}
	return *mapped, nil
}

// address returns the address that Fabric Manager lists, and false if it lists none. NVIDIA's tools print a domain of eight digits, and
// zeros for an unknown address.
func (g *GPU) address() (pci.Address, bool, error) {
	if strings.Trim(g.Address, "0:.") == "" {
		return pci.Address{}, false, nil
	}
	a, err := pci.ParseAddress(g.Address)
	if err != nil {
		return a, false, mapError("Fabric Manager has module %d at %q, which is no PCI address", g.Module, g.Address)
	}
	return a, true, nil
}

// Name identifies the board on its node: the label of the GPU with the lowest module.
func (b *Board) Name() string {
	if len(b.places) == 0 {
		return ""
	}
	return b.places[0].Address.Label()
}

// Places returns the GPUs by module.
func (b *Board) Places() []Place { return b.places }

// Module returns the module of the GPU at an address, and false if the board has no GPU there.
func (b *Board) Module(a pci.Address) (int, bool) {
	i := slices.IndexFunc(b.places, func(p Place) bool { return p.Address == a })
	if i < 0 {
		return 0, false
	}
	return b.places[i].Module, true
}

// Partitions returns the partitions in the order in which they are best assigned: see [Board.sort].
func (b *Board) Partitions() List { return b.partitions }

// Partition returns the partition that consists of exactly the GPUs at the addresses; nil if there is none.
func (b *Board) Partition(of []pci.Address) *Partition {
	modules := make([]int, len(of))
	for i, a := range of {
		m, ok := b.Module(a)
		if !ok {
			return nil
		}
		modules[i] = m
	}
	slices.Sort(modules)
	return b.partitions.With(modules)
}

// Addresses returns the functions of a partition of the board, in order of address.
func (b *Board) Addresses(p *Partition) []pci.Address {
	all := make([]pci.Address, 0, len(p.GPUs))
	for _, place := range b.places {
		if p.Has(place.Module) {
			all = append(all, place.Address)
		}
	}
	slices.SortFunc(all, pci.Address.Compare)
	return all
}

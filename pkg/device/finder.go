package device

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// Finder finds the present functions of many former identities. It identifies each function of its snapshot once.
type Finder struct {
	snap      *Snapshot
	byAddress map[pci.Address]Identity
	byInode   map[uint64]*Function
	// byModel has functions by the part of the identity that all functions of their model have.
	byModel  map[Identity][]identified
	byVendor map[pci.ID][]identified
}

// NewFinder returns a Finder for a snapshot, which must not change afterwards.
func NewFinder(s *Snapshot) *Finder {
	finder := &Finder{
		snap: s, byAddress: make(map[pci.Address]Identity, len(s.Functions)), byInode: make(map[uint64]*Function, len(s.Functions)),
		byModel: map[Identity][]identified{}, byVendor: map[pci.ID][]identified{},
	}
	for i := range s.Functions {
		f := &s.Functions[i]
		one, model := identified{f, s.Identify(f)}, newModel(f)
		finder.byAddress[f.Address] = one.id
		if finder.byInode[f.Inode] == nil {
			finder.byInode[f.Inode] = f
		}
		finder.byModel[model] = append(finder.byModel[model], one)
		finder.byVendor[f.Vendor] = append(finder.byVendor[f.Vendor], one)
	}
	return finder
}

// Identify is [Snapshot.Identify].
func (finder *Finder) Identify(f *Function) Identity { return finder.byAddress[f.Address] }

// Find is [Snapshot.Find].
func (finder *Finder) Find(id Identity) Found {
	if f := finder.byInode[id.Inode]; f != nil && id.Inode != 0 && id.BootID == finder.snap.Host.BootID {
		return Found{Function: f, Sure: true}
	}
	if id.Serial != "" { // its firmware, and thereby its model, may have changed
		return choose(id, finder.byVendor[id.Vendor])
	}
	return choose(id, finder.byModel[id.model()])
}

// model returns the part of the identity that all functions of its model have.
func (id Identity) model() Identity {
	return Identity{Vendor: id.Vendor, Device: id.Device, SubVendor: id.SubVendor, SubDevice: id.SubDevice, Class: id.Class, Revision: id.Revision}
}

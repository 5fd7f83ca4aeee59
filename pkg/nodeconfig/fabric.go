package nodeconfig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Fabric is a node's NVLink fabric: which partitions of GPUs it has, or why none is known.
type Fabric struct {
	// Board has the GPUs and partitions; nil if no partition is known. Why and Fix then say why, and what to do.
	Board    *fabric.Board
	Why, Fix string
	// Away says why Fabric Manager can't be asked now; empty if it answered last.
	Away string
	// Version is the version of NVIDIA's driver on the node, and of Fabric Manager; empty if it is unknown. The guest's driver must have
	// the same version.
	Version string

	s          *device.Snapshot
	sel        *Selection
	partitions []device.Partition
}

// Fabric returns the node's fabric; nil if the config has none.
func (sel *Selection) Fabric() *Fabric { return sel.fabric }

// Has reports whether a function is a GPU of the fabric. While no board is known, each GPU that may be part of one counts: without a
// partition, a GPU of a fabric is of no use to its tenant. A GPU of the same model as the board's GPUs counts too: Fabric Manager leaves
// out partitions when a part of the board fails, and it is then unknown what the GPU's links reach.
func (f *Fabric) Has(fn *device.Function) bool {
	if f == nil || !mayBeOfFabric(fn) {
		return false
	}
	if f.Board == nil {
		return true
	}
	return slices.ContainsFunc(f.Board.Places(), func(p fabric.Place) bool {
		on, ok := f.s.Function(p.Address)
		return p.Address == fn.Address || ok && mayBeOfFabric(on) && on.Device == fn.Device
	})
}

// mayBeOfFabric reports whether the function is a GPU of a kind that may have NVLink to switches. GPUs that drive monitors
// have another class, and no such NVLink.
func mayBeOfFabric(fn *device.Function) bool {
	return fn.Type == device.GPU && fn.VF == nil && fn.Vendor == pci.VendorNVIDIA && fn.Class.Sub() == pci.Class3D
}

// Partitions returns the partitions of two or more GPUs whose GPUs kata-vfio may all take, in the order in which they are best assigned.
func (f *Fabric) Partitions() []device.Partition {
	if f == nil {
		return nil
	}
	return f.partitions
}

// IsAlone reports whether a GPU can be assigned by itself. A GPU of a fabric can if it has a partition of its own.
func (f *Fabric) IsAlone(fn *device.Function) bool {
	return !f.Has(fn) || f.Board == nil || f.Board.Partition([]pci.Address{fn.Address}) != nil
}

// join finds the selection's fabric.
func (sel *Selection) join(cfg *v1alpha1.Fabric, s *device.Snapshot) {
	if cfg == nil {
		return
	}
	f := &Fabric{Version: s.Host.Fabric.Driver, s: s, sel: sel}
	sel.fabric = f
	if err := f.resolve(cfg); err != nil {
		f.Why, f.Fix = err.Error(), fixOfFabric(err)
		sel.problems = append(sel.problems, problem("fabric", "has no partitions: "+f.Why, f.Fix))
		return
	}
	for _, p := range f.Board.Partitions() {
		// A partition of one GPU is published as the GPU itself. See IsAlone.
		if len(p.GPUs) < 2 {
			continue
		}
		if gpus := f.assignable(f.Board.Addresses(&p)); gpus != nil {
			f.partitions = append(f.partitions, *gpus)
		}
	}
}

// unaskedError says that no list of partitions is known yet.
type unaskedError struct{}

func (unaskedError) Error() string { return "Fabric Manager has not listed its partitions yet" }

// emptyError says that there is no partition to assign. Fabric Manager did answer, and the node has a fabric.
type emptyError struct{}

func (emptyError) Error() string { return "Fabric Manager lists no partition" }

// unreadError says that a file about the fabric can't be read.
type unreadError string

func (e unreadError) Error() string { return string(e) }

// fixOfFabric returns what to do about the error because of which no board is known.
func fixOfFabric(err error) string {
	switch {
	case errors.As(err, new(unaskedError)):
		return "start Fabric Manager, with FABRIC_MODE=1, and the plugin, whose log says what it answers"
	case errors.As(err, new(emptyError)):
		return "look into Fabric Manager's log (/var/log/fabricmanager.log) for the GPU or NVSwitch that failed, and restart it while no VM has a GPU"
	case errors.As(err, new(unreadError)):
		return "move the file away: the plugin writes its own again once it has asked Fabric Manager, and `kata-vfio-bootstrap modules --write` the map"
	case errors.As(err, new(*fabric.ListError)):
		return "check that Fabric Manager, its library and the driver have one version (deploy/guides/hgx.md)"
	}
	return "run `kata-vfio-bootstrap modules --write` while NVIDIA's driver has all GPUs, which captures the map, or write fabric.modules in the node config (deploy/guides/hgx.md)"
}

// resolve joins what Fabric Manager listed last, the map of modules, and the node's GPUs.
func (f *Fabric) resolve(cfg *v1alpha1.Fabric) error {
	facts := &f.s.Host.Fabric
	if facts.Unread != "" {
		return unreadError(facts.Unread)
	}
	captured, err := capturedMap(cfg, facts)
	if err != nil {
		return err
	}
	m, err := FabricMap(cfg, captured, f.s)
	if err != nil {
		return err
	}
	if facts.State == "" {
		return unaskedError{}
	}
	state, err := fabric.Parse[fabric.State]([]byte(facts.State))
	if err != nil {
		return unreadError(fmt.Sprintf("%s can't be read: %v", fabric.StateFile, err))
	}
	f.Away = state.Away
	if state.Partitions == nil {
		return unaskedError{}
	}
	if len(state.Partitions) == 0 {
		return emptyError{}
	}
	f.Board, err = fabric.NewBoard(state.Partitions, m)
	return err
}

// capturedMap returns the map that bootstrap captured; nil if there is none, or if the config has one.
func capturedMap(cfg *v1alpha1.Fabric, facts *device.FabricFacts) (*fabric.Map, error) {
	if cfg.Modules != nil || facts.Modules == "" {
		return nil, nil
	}
	m, err := fabric.Parse[fabric.Map]([]byte(facts.Modules))
	if err != nil {
		return nil, fmt.Errorf("%s can't be read: %w", fabric.MapFile, err)
	}
	return m, nil
}

// FabricMap returns the map of modules that counts: that of the config, which may be nil, or else the one that bootstrap captured; nil if
// there is neither. It refuses a map of another machine, or of other GPUs.
func FabricMap(cfg *v1alpha1.Fabric, captured *fabric.Map, s *device.Snapshot) (*fabric.Map, error) {
	m := captured
	if cfg != nil && cfg.Modules != nil {
		m = &fabric.Map{}
		for _, c := range cfg.Modules {
			m.Places = append(m.Places, fabric.Place{Module: *c.Module, Address: c.Address, Serial: c.SerialNumber})
		}
	}
	if m == nil {
		return nil, nil
	}
	return m, m.Check(s.Host.Fabric.Product, presentGPUs(s))
}

// presentGPUs returns the GPUs that may be of a fabric.
func presentGPUs(s *device.Snapshot) []fabric.Present {
	var all []fabric.Present
	for i := range s.Functions {
		if fn := &s.Functions[i]; mayBeOfFabric(fn) {
			all = append(all, fabric.Present{Address: fn.Address, Serial: fn.Capabilities.Serial})
		}
	}
	return all
}

// assignable returns the partition of the functions. It returns nil if kata-vfio may not take one of them, or if one is shared with a
// driver for containers.
func (f *Fabric) assignable(addrs []pci.Address) *device.Partition {
	p := &device.Partition{}
	for _, a := range addrs {
		fn, ok := f.s.Function(a)
		choice := f.sel.Choice(a)
		if !ok || !mayBeOfFabric(fn) || !choice.Ours || choice.SharedWith != "" {
			return nil
		}
		p.GPUs = append(p.GPUs, fn)
	}
	if p.Name() == "" {
		f.sel.problems = append(f.sel.problems, problem("fabric",
			fmt.Sprintf("has a partition of %d GPUs whose addresses are too long for the name of a device", len(addrs)), "give single GPUs away"))
		return nil
	}
	return p
}

// Active returns the active partition that a GPU is in, by Fabric Manager's last list; nil if there is none.
func (f *Fabric) Active(fn *device.Function) *fabric.Partition {
	if f == nil || f.Board == nil {
		return nil
	}
	m, ok := f.Board.Module(fn.Address)
	if !ok {
		return nil
	}
	return f.Board.Partitions().Holding(m)
}

// Links returns how many NVLinks each GPU of a partition has, by the GPU with the fewest. It returns false if Fabric Manager lists no
// partition of exactly these GPUs, or no links for it.
func (f *Fabric) Links(gpus []pci.Address) (int, bool) {
	if f == nil || f.Board == nil {
		return 0, false
	}
	p := f.Board.Partition(gpus)
	if p == nil {
		return 0, false
	}
	return p.Links()
}

// Position returns the place of a GPU of the fabric in the order in which GPUs are best assigned. Other functions have the place 0, before
// all of these.
func (f *Fabric) Position(a pci.Address) int {
	if f == nil || f.Board == nil {
		return 0
	}
	m, ok := f.Board.Module(a)
	if !ok {
		return 0
	}
	return 1 + f.Board.Position(m)
}

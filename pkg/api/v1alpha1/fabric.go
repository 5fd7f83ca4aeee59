package v1alpha1

import (
	"errors"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Fabric says how the plugin asks NVIDIA's Fabric Manager of a node whose GPUs are joined by NVLink switches, so that each VM gets a
// partition of them. Without it, GPUs are assigned one by one, and none of them has NVLink.
type Fabric struct {
	// Address is the address of Fabric Manager's API: "unix:" and the path of a socket on the node, "tcp:" with address and port, or
	// "vsock:" with context ID and port. Fabric Manager does not authenticate its callers: only a socket in a directory of root's keeps
	// others out. Default: the socket that kata-vfio-bootstrap sets up.
	Address string `json:"address,omitempty"`
	// Client is the program that makes the calls. Default: Helper.
	Client FabricClient `json:"client,omitempty"`
	// Program is its path where the plugin runs. Default: /usr/bin/kata-vfio-fabric for Helper, as in the image that
	// `make fabric-image` makes, and /usr/bin/fmpm for FMPM.
	Program string `json:"program,omitempty"`
	// Modules say which GPU is at which place of the board. They take precedence over the map that kata-vfio-bootstrap captures. Without
	// either, there are partitions only if Fabric Manager itself lists the addresses, as on A100.
	Modules []FabricModule `json:"modules,omitempty"`
}

// FabricClient is a program that makes calls of Fabric Manager's API.
type FabricClient string

// Clients.
const (
	// FabricHelper is kata-vfio-fabric, which loads NVIDIA's library libnvfm.
	FabricHelper FabricClient = "Helper"
	// FabricFMPM is NVIDIA's fmpm. It reaches Fabric Manager by TCP alone, whatever its flags say.
	FabricFMPM FabricClient = "FMPM"
)

// DefaultFabricAddress is the socket that kata-vfio-bootstrap has Fabric Manager listen at.
const DefaultFabricAddress = "unix:/run/kata-vfio-fabric/fabricmanager.sock"

// FabricModule is one GPU of a board.
type FabricModule struct {
	// Module is the Module ID of `nvidia-smi -q`, which is the physicalId of Fabric Manager on H100 and later.
	Module *int `json:"module"`
	// Address is the GPU's PCI address. The order of addresses has nothing to do with that of the modules.
	Address pci.Address `json:"address"`
	// SerialNumber is the GPU's PCIe serial number, as kata-vfio-audit devices -o json shows it. Optional. If the GPU at the address has
	// another one, the map is not used.
	SerialNumber string `json:"serialNumber,omitempty"`
}

// mostModule is the highest place on a board.
const mostModule = 255

func (f *Fabric) setDefaults() {
	if f == nil {
		return
	}
	if f.Address == "" {
		f.Address = DefaultFabricAddress
	}
	if f.Client == "" {
		f.Client = FabricHelper
	}
}

// check adds the problems of the fabric at path.
func (f *Fabric) check(p *problems, at string) {
	if f == nil {
		return
	}
	among(p, at+".client", f.Client, FabricHelper, FabricFMPM)
	kind, _, err := fabric.SplitAddress(f.Address)
	if e, ok := errors.AsType[*fabric.AddressError](err); ok {
		p.add(at+".address", "%s %s", show(f.Address), e.Why)
	} else if kind != fabric.TCP && f.Client == FabricFMPM {
		p.add(at+".address", "%s is of no use to fmpm, which connects by TCP alone; use client Helper, or an address such as tcp:127.0.0.1:6666", show(f.Address))
	}
	if f.Program != "" && (!path.IsAbs(f.Program) || path.Clean(f.Program) != f.Program) {
		p.add(at+".program", "%s is not an absolute path", show(f.Program))
	}
	f.checkModules(p, at+".modules")
}

func (f *Fabric) checkModules(p *problems, at string) {
	if f.Modules != nil && len(f.Modules) == 0 {
		p.add(at, "the list is empty, so that no GPU is on the board; remove it or fill it")
	}
	for i, m := range f.Modules {
		if m.Module == nil {
			p.add(index(at, i)+".module", "missing; `nvidia-smi -q` prints it as Module ID")
			continue
		}
		p.within(index(at, i)+".module", m.Module, mostModule)
		if m.Address == (pci.Address{}) {
			p.add(index(at, i)+".address", "missing; want that of the GPU, such as 0000:3b:00.0")
		}
		// Entry i matches itself, so a lower index is an earlier entry with the same module or GPU.
		first := slices.IndexFunc(f.Modules, func(o FabricModule) bool {
			return o.Module != nil && *o.Module == *m.Module || o.Address == m.Address
		})
		if first < i {
			p.add(index(at, i), "module %d at %s: %s has one of the two already", *m.Module, m.Address, index(at, first))
		}
	}
}

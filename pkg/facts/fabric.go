package facts

import (
	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
)

// The configuration of NVIDIA's Fabric Manager. With bootstrap's drop-in for its service, Fabric Manager reads bootstrap's file
// instead of the vendor's.
const (
	vendorFabricConfig = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
	OurFabricConfig    = "etc/kata-vfio/fabricmanager.cfg"
	FabricDropIn       = "etc/systemd/system/nvidia-fabricmanager.service.d/50-kata-vfio.conf"
)

// FabricConfig returns the configuration that Fabric Manager starts with.
func (n *Node) FabricConfig() Fact {
	// Only the drop-in makes Fabric Manager read the file: without it, the file has no effect.
	if n.Exists(FabricDropIn).OK() {
		if ours := n.Read(OurFabricConfig); ours.OK() {
			return ours
		}
	}
	return n.Read(vendorFabricConfig)
}

// Fabric is a file about the partitions of an NVLink fabric. Value is nil if the file is missing or can't be read.
type Fabric[T any] struct {
	Value *T
	Fact  Fact
}

// FabricState returns the last answer of Fabric Manager to the plugin.
func (n *Node) FabricState() Fabric[fabric.State] {
	return readFabric[fabric.State](n, fabric.StateFile)
}

// FabricMap returns the map of modules that bootstrap captured.
func (n *Node) FabricMap() Fabric[fabric.Map] { return readFabric[fabric.Map](n, fabric.MapFile) }

// BoardMap returns the map of modules by which the plugin finds a partition's GPUs: the map of the node config, or else the map
// that bootstrap captured. The fact is Broken if the map belongs to another machine.
func (n *Node) BoardMap() Fabric[fabric.Map] {
	m := n.FabricMap()
	var cfg *v1alpha1.Fabric
	if n.offer.config != nil {
		cfg = n.offer.config.Fabric
	}
	switch {
	case cfg != nil && cfg.Modules != nil:
		m.Fact = n.configFact()
	case m.Value == nil:
		return m
	}
	counts, err := nodeconfig.FabricMap(cfg, m.Value, n.Snapshot)
	if err != nil {
		return Fabric[fabric.Map]{Fact: m.Fact.BrokenBy(err)}
	}
	m.Value = counts
	return m
}

func readFabric[T fabric.State | fabric.Map](n *Node, name string) Fabric[T] {
	f := Fabric[T]{Fact: n.Read(name)}
	if !f.Fact.OK() {
		return f
	}
	v, err := fabric.Parse[T]([]byte(f.Fact.Value))
	if err != nil {
		f.Fact.Status, f.Fact.Err = Broken, err.Error()
		return f
	}
	f.Value = v
	return f
}

package device

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Nearness is the nearest common part of the paths to two functions of a node. It is ordered: the smaller, the
// nearer.
type Nearness int

// Steps of nearness.
const (
	// SameSwitch: both are below one switch, and neither is below a further switch of its own. So requests between them
	// don't pass the root complex.
	SameSwitch Nearness = iota
	SameRoot
	SameNUMANode
	Far
)

// Near returns the nearness of f and g. A fact that the kernel does not state for one of them does not count as
// common.
func Near(f, g *Function) Nearness {
	switch {
	case f.Switch != nil && g.Switch != nil && *f.Switch == *g.Switch:
		return SameSwitch
	case f.Root != "" && f.Root == g.Root:
		return SameRoot
	case f.NUMANode != nil && g.NUMANode != nil && *f.NUMANode == *g.NUMANode:
		return SameNUMANode
	}
	return Far
}

// String returns the nearness as a word: switch, root, numa, far.
func (n Nearness) String() string {
	return [...]string{"switch", "root", "numa", "far"}[min(max(n, SameSwitch), Far)]
}

// PairType is the type of a [Pair] among the types of functions.
const PairType Type = "gpu-vf"

// Pair is a GPU and the VF of a NIC near it, which are assigned as one device. The pointers are into a snapshot:
// read, don't write.
type Pair struct {
	GPU, VF *Function
}

// Name returns the pair's device name in ResourceSlices, a DNS label with both functions:
// "gpu-0000-3b-00-0-vf-0000-3c-10-1".
func (p *Pair) Name() string { return p.GPU.Name() + pairJoint + p.VF.Address.Label() }

// pairJoint separates the labels in a pair's name; an address has no "v".
const pairJoint = "-" + string(VFType) + "-"

// Part is one function of a device as ResourceSlices have it.
type Part struct {
	// Name is the name of the function's own device, see [Function.Name].
	Name    string
	Type    Type
	Address pci.Address
}

// ParseParts returns the functions in a device name: for a pair the GPU and the VF, for a partition the GPUs by address, for any other
// device the one function.
func ParseParts(name string) ([]Part, error) {
	if parts, is, err := parsePartition(name); is {
		return parts, err
	}
	gpu, vf, isPair := strings.Cut(name, pairJoint)
	names := []string{name}
	if isPair {
		names = []string{gpu, pairJoint[1:] + vf}
	}
	parts := make([]Part, len(names))
	for i, n := range names {
		kind, addr, err := ParseName(n)
		if err != nil {
			return nil, err
		}
		parts[i] = Part{n, kind, addr}
	}
	if isPair && parts[0].Type != GPU {
		return nil, fmt.Errorf("device name %q: the first function of a pair is a GPU", name)
	}
	return parts, nil
}

// PartsType returns the type of the device of these functions.
func PartsType(parts []Part) Type {
	switch {
	case len(parts) == 1:
		return parts[0].Type
	case parts[1].Type == GPU:
		return PartitionType
	}
	return PairType
}

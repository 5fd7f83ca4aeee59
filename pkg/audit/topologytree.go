package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Root is one PCI root bus and the functions below it.
type Root struct {
	// Name is the root bus, "pci0000:3b".
	Name string
	// NUMA is the NUMA node of the functions below the root; nil if no function states one.
	NUMA     *int
	Children []*Node
	// Folded is set if a drawing shows counts of the functions instead of the functions.
	Folded bool
	// exclusive are the states of the exclusive domains that are the root bus itself or contain it.
	exclusive []string
}

// Node is one function in the tree.
type Node struct {
	Device *Device
	// Children are the functions below a bridge, by address. VFs are the VFs of a PF, by index. A VF is in VFs, and not in Children,
	// if its PF is in the tree.
	Children []*Node
	VFs      []*Device
}

// Roots builds the tree of all functions, roots in order of NUMA node and name. A
// function whose bridges are unknown is directly below its root.
func Roots(inv *Inventory) []Root {
	nodes := make(map[pci.Address]*Node, len(inv.Devices))
	for i := range inv.Devices {
		d := &inv.Devices[i]
		nodes[d.Address] = &Node{Device: d}
	}
	roots := map[string]*Root{}
	for i := range inv.Devices {
		n := nodes[inv.Devices[i].Address]
		if n.hang(nodes) {
			continue
		}
		name := rootName(n.Device)
		if roots[name] == nil {
			roots[name] = &Root{Name: name}
		}
		roots[name].Children = append(roots[name].Children, n)
	}
	all := sorted(roots)
	for i := range all {
		all[i].exclusive = inv.exclusiveOn(&all[i])
	}
	return all
}

// hang puts n below its PF or its lowest bridge, and reports whether it has one.
func (n *Node) hang(nodes map[pci.Address]*Node) bool {
	if n.Device.PFAddress != nil {
		if pf, ok := nodes[*n.Device.PFAddress]; ok {
			pf.VFs = append(pf.VFs, n.Device)
			return true
		}
	}
	// Upstream begins at the root, so the search from its end finds the nearest bridge in the tree.
	for _, bridge := range slices.Backward(n.Device.Upstream) {
		if b, ok := nodes[bridge]; ok && b != n {
			b.Children = append(b.Children, n)
			return true
		}
	}
	return false
}

func rootName(d *Device) string {
	if d.Root != "" {
		return d.Root
	}
	return fmt.Sprintf("pci%04x:%02x", d.Address.Domain, d.Address.Bus)
}

func sorted(roots map[string]*Root) []Root {
	list := make([]Root, 0, len(roots))
	for _, r := range roots {
		r.NUMA = firstNUMA(r.Children)
		for _, n := range r.Children {
			n.sortVFs()
		}
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b Root) int {
		// Names of domains above ffff, such as VMD's, have more digits, and come
		// last.
		return cmp.Or(device.CompareNUMA(a.NUMA, b.NUMA), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// firstNUMA returns the first NUMA node that a function below states.
func firstNUMA(nodes []*Node) *int {
	for _, n := range nodes {
		if n.Device.NUMANode != nil {
			return n.Device.NUMANode
		}
		if below := firstNUMA(n.Children); below != nil {
			return below
		}
	}
	return nil
}

func (n *Node) sortVFs() {
	slices.SortFunc(n.VFs, func(a, b *Device) int { return cmp.Compare(*a.VFIndex, *b.VFIndex) })
	for _, c := range n.Children {
		c.sortVFs()
	}
}

// Kind names the kind of a bridge in PCIe's terms.
func Kind(d *Device) string {
	names := map[pci.PortType]string{
		pci.RootPort: "root port", pci.UpstreamPort: "switch, up", pci.DownstreamPort: "switch, down",
		pci.PCIeToPCI: "PCIe-PCI bridge", pci.PCIToPCIe: "PCI-PCIe bridge",
	}
	if express := d.Capabilities.Express; express != nil && names[express.Type] != "" {
		return names[express.Type]
	}
	switch d.Class.Sub() {
	case pci.ClassHostBridge:
		return "host bridge"
	case pci.ClassPCIBridge:
		return "PCI bridge"
	// PCI_CLASS_BRIDGE_ISA in include/linux/pci_ids.h.
	case 0x0601:
		return "ISA bridge"
	}
	return "bridge"
}

// Tree returns a node's PCIe tree with its verdicts: a line for each root and each
// function. A folded root has its counts.
func Tree(inv *Inventory, detail Detail) []output.Branch {
	roots := newRoots(inv, detail)
	trees := make([]output.Branch, len(roots))
	for i := range roots {
		r := &roots[i]
		trees[i].Text = strings.Join(append([]string{device.RootLine(r.Name, r.NUMA)}, r.exclusive...), "  ")
		if r.Folded {
			counts, grade := r.foldedLine()
			trees[i].Below = []output.Branch{{Text: counts, Color: grade.Color()}}
			continue
		}
		for _, n := range r.Children {
			trees[i].Below = append(trees[i].Below, n.branch())
		}
	}
	return slices.Concat(inv.fabricBranches(), inv.beyondBranches(), trees)
}

func (n *Node) branch() output.Branch {
	t := output.Branch{Text: deviceLine(n.Device), Color: n.Device.Grade().Color()}
	for _, c := range n.Children {
		t.Below = append(t.Below, c.branch())
	}
	for _, vf := range n.VFs {
		t.Below = append(t.Below, output.Branch{Text: deviceLine(vf), Color: vf.Grade().Color()})
	}
	return t
}

// sanitizing is the state of a function that waits for its sanitizing stage, in drawings.
const sanitizing = "sanitizing"

// deviceLine returns the same text about a function as its card in the drawing.
func deviceLine(d *Device) string {
	what := []string{d.Address.String()}
	if d.IsBridge() {
		what = append(what, Kind(d))
	} else {
		what = append(what, string(d.Type), d.Product(), firstText(d.Driver, "no driver"))
	}
	if d.Group != nil {
		what = append(what, groupName(d))
	}
	if d.Near != nil {
		what = append(what, briefNearLine(d))
	}
	if s := d.Grade(); s == Bad || s == Concern {
		what = append(what, codeNames(d))
	}
	if text := cmp.Or(d.Waits(), d.LeftOut()); text != "" {
		what = append(what, text)
	}
	what = append(what, d.places()...)
	return strings.TrimLeft(d.Grade().Mark()+" ", " ") + strings.Join(what, "  ")
}

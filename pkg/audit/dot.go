package audit

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// WriteDOT writes the tree as a Graphviz graph: roots, bridges and functions
// as nodes named by address, IOMMU groups as clusters, verdicts as color and
// symbol. A folded root's label has its counts. `dot -Tsvg` draws it.
func WriteDOT(w io.Writer, inv *Inventory, detail Detail) error {
	var b strings.Builder
	roots := newRoots(inv, detail)
	inv = unfoldedOnly(inv, roots)
	b.WriteString("digraph pcie {\n\trankdir=LR;\n\tnode [shape=box, style=\"rounded,filled\", fontname=\"monospace\"];\n")
	if beyond := inv.beyond(); len(beyond) > 0 {
		fmt.Fprintf(&b, "\tlabel=%s;\n", quote(strings.Join(beyond, "\\n")))
	}
	clusters(&b, inv)
	for _, r := range roots {
		fmt.Fprintf(&b, "\t%s [shape=oval, fillcolor=%s, label=%s];\n", quote(r.Name), rootFill(r), quote(rootLabel(r)))
		if r.Folded {
			continue
		}
		for _, n := range r.Children {
			edges(&b, r.Name, n)
		}
	}
	groupedAreas(&b, inv)
	for _, e := range inv.fabricEdges() {
		fmt.Fprintf(&b, "\t%s -> %s [dir=none, style=bold, constraint=false, label=%s];\n", quote(e[0].Address.String()), quote(e[1].Address.String()), quote(fmt.Sprintf("partition %d", *e[0].FabricPartition)))
	}
	b.WriteString("}\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write graph: %w", err)
	}
	return nil
}

func rootLabel(r Root) string {
	var label strings.Builder
	label.WriteString(r.Name)
	if r.NUMA != nil {
		fmt.Fprintf(&label, "\\nNUMA node %d", *r.NUMA)
	}
	for _, text := range r.exclusive {
		label.WriteString("\\n" + text)
	}
	if r.Folded {
		counts, _ := r.foldedLine()
		label.WriteString("\\n" + counts)
	}
	return label.String()
}

func rootFill(r Root) string {
	if !r.Folded {
		return "white"
	}
	_, grade := r.foldedLine()
	return fill(grade)
}

func fill(g Grade) string {
	return map[Grade]string{None: "gray90", Good: "palegreen", Concern: "khaki", Bad: "lightpink"}[g]
}

// clusters writes the node of every function, and puts the nodes of one IOMMU group into one cluster.
func clusters(b *strings.Builder, inv *Inventory) {
	var groups []int
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if d.Group == nil {
			b.WriteString("\t" + dotNode(d))
		} else if !slices.Contains(groups, *d.Group) {
			groups = append(groups, *d.Group)
		}
	}
	slices.Sort(groups)
	for _, g := range groups {
		// Graphviz draws a box only around a subgraph whose name begins with cluster.
		fmt.Fprintf(b, "\tsubgraph cluster_group_%d {\n\t\tlabel=\"IOMMU group %d\";\n\t\tstyle=rounded;\n", g, g)
		for i := range inv.Devices {
			if d := &inv.Devices[i]; d.Group != nil && *d.Group == g {
				b.WriteString("\t\t" + dotNode(d))
			}
		}
		b.WriteString("\t}\n")
	}
}

func dotNode(d *Device) string {
	var label strings.Builder
	label.WriteString(d.Address.String() + " " + dotKind(d) + "\\n" + d.Product())
	if d.Driver != "" {
		label.WriteString("\\ndriver " + d.Driver)
	}
	if d.Grade() == Bad {
		label.WriteString("\\n✗ " + string(d.Against()[0].Code))
	}
	if text := cmp.Or(d.Waits(), d.LeftOut()); text != "" {
		label.WriteString("\\n" + text)
	}
	for _, text := range d.places() {
		label.WriteString("\\n" + text)
	}
	return fmt.Sprintf("%s [fillcolor=%s, label=%s];\n", quote(d.Address.String()), fill(d.Grade()), quote(label.String()))
}

func dotKind(d *Device) string {
	if d.IsBridge() {
		return Kind(d)
	}
	return string(d.Type)
}

func edges(b *strings.Builder, parent string, n *Node) {
	self := n.Device.Address.String()
	fmt.Fprintf(b, "\t%s -> %s;\n", quote(parent), quote(self))
	for _, vf := range n.VFs {
		fmt.Fprintf(b, "\t%s -> %s [style=dashed];\n", quote(self), quote(vf.Address.String()))
	}
	for _, c := range n.Children {
		edges(b, self, c)
	}
}

// groupedAreas connects each GPU with the NICs at its switch or root. It draws no lines for GPUs and NICs that have only a NUMA
// node in common, because these would be too many.
func groupedAreas(b *strings.Builder, inv *Inventory) {
	drawn := map[pci.Address]bool{}
	for i := range inv.Devices {
		drawn[inv.Devices[i].Address] = true
	}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if d.Type != device.GPU || d.Near == nil || d.Near.Nearness == device.SameNUMANode.String() {
			continue
		}
		for _, nic := range d.Near.Addresses {
			if !drawn[nic] {
				continue
			}
			// With constraint=false, the lines between neighbors don't change the positions of the tree's nodes.
			fmt.Fprintf(b, "\t%s -> %s [dir=none, style=dotted, constraint=false, label=%s];\n", quote(d.Address.String()), quote(nic.String()), quote(d.Near.Nearness))
		}
	}
}

// quote writes a DOT string; "\n" stays a line break.
func quote(text string) string {
	return strings.ReplaceAll(strconv.Quote(text), `\\n`, `\n`)
}

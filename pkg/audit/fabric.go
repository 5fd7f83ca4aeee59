package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// fabricLines returns the lines for a fabric and its partitions, within a width. On a narrow terminal, the column of modules is left out.
func fabricLines(s *plan.FabricState, width, terminal int) []string {
	lines := output.Wrap(output.Visible(s.Words()), width)
	for _, note := range s.Notes() {
		for _, line := range output.Wrap(output.Visible(note), width-2) {
			lines = append(lines, "  "+line)
		}
	}
	if len(s.Partitions) == 0 {
		return lines
	}
	return append(append(lines, ""), output.Columns(s.Rows(), terminal, "MODULES")...)
}

// fabricBranches returns the lines of the fabric in a tree.
func (inv *Inventory) fabricBranches() []output.Branch {
	s := inv.Fabric
	if s == nil {
		return nil
	}
	top := output.Branch{Text: s.Words()}
	for _, note := range s.Notes() {
		top.Below = append(top.Below, output.Branch{Text: note, Color: Bad.Color()})
	}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		top.Below = append(top.Below, output.Branch{
			Text:  strings.Join([]string{fmt.Sprintf("partition %d", p.ID), "modules " + p.ModuleWords(), orDash(p.Device), p.Words()}, "  "),
			Color: PartitionGrade(p).Color(),
		})
	}
	return []output.Branch{top}
}

// PartitionGrade is Bad for a partition whose claim has no NVLink, and for an active one that no claim has: none of its GPUs can be assigned.
func PartitionGrade(p *plan.PartitionState) Grade {
	switch {
	case p.Use == plan.PartitionInactive, p.Use == plan.PartitionActive && p.Claim == "":
		return Bad
	case p.Use == plan.PartitionFree:
		return Good
	}
	return None
}

// joinFabric sets each GPU's place on the board, and its active partition.
func (inv *Inventory) joinFabric() {
	if inv.Fabric == nil {
		return
	}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		for _, p := range inv.Fabric.Modules {
			if p.Address == d.Address {
				d.FabricModule = new(p.Module)
			}
		}
		if p := inv.Fabric.Holding(d.Address); p != nil {
			d.FabricPartition = new(p.ID)
		}
	}
}

// fabricWords returns the place of a GPU on its board, and its active partition: "module 3, partition 12 active"; empty for other
// functions.
func (d *Device) fabricWords() string {
	var words []string
	if d.FabricModule != nil {
		words = append(words, fmt.Sprintf("module %d", *d.FabricModule))
	}
	if d.FabricPartition != nil {
		words = append(words, fmt.Sprintf("partition %d active", *d.FabricPartition))
	}
	return strings.Join(words, ", ")
}

// places returns the texts about a function's place in the hardware for its line or card: its place on a board, and exclusive domains.
func (d *Device) places() []string {
	return slices.DeleteFunc(append([]string{d.fabricWords()}, d.exclusive...), func(s string) bool { return s == "" })
}

// beyond returns the states that have no place in the tree, for a heading: those of exclusive domains, and of the fabric.
func (inv *Inventory) beyond() []string {
	all := inv.exclusiveBeyond()
	if inv.Fabric != nil {
		all = append(all, inv.Fabric.Words())
	}
	return all
}

// fabricText returns the lines about the fabric in a drawing: its state, the notes about it, and the partitions that are active or
// that claims have. The cards show the rest.
func fabricText(s *plan.FabricState) []string {
	if s == nil {
		return nil
	}
	lines := append([]string{s.Words()}, s.Notes()...)
	for i := range s.Partitions {
		if p := &s.Partitions[i]; p.Use == plan.PartitionActive || p.Use == plan.PartitionInactive {
			lines = append(lines, fmt.Sprintf("partition %d, modules %s, %s", p.ID, p.ModuleWords(), p.Words()))
		}
	}
	return lines
}

// fabricEdges returns the pairs of consecutive GPUs in each active partition, which a graph connects by lines.
func (inv *Inventory) fabricEdges() [][2]*Device {
	var edges [][2]*Device
	if inv.Fabric == nil {
		return nil
	}
	for i := range inv.Fabric.Partitions {
		p := &inv.Fabric.Partitions[i]
		if p.Use != plan.PartitionActive {
			continue
		}
		var last *Device
		for j := range inv.Devices {
			d := &inv.Devices[j]
			if d.Type != device.GPU || !slices.Contains(p.GPUs, d.Address) {
				continue
			}
			if last != nil {
				edges = append(edges, [2]*Device{last, d})
			}
			last = d
		}
	}
	return edges
}

package host

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// PlaceHugePages returns a blueprint in which huge pages for functions are placed on the functions' NUMA nodes, so that the
// memory of their VMs is not behind another processor. It leaves out pages whose NUMA node is unknown, and returns a problem
// for each.
func PlaceHugePages(tree state.Tree, b *blueprint.Blueprint, p *Platform) (*blueprint.Blueprint, []state.Problem) {
	if !slices.ContainsFunc(b.Kernel.HugePages, func(h blueprint.HugePages) bool { return h.Device != nil }) {
		return b, nil
	}
	n := &node{tree: tree, blueprint: b, platform: p}
	placed := *b
	placed.Kernel.HugePages = nil
	for _, h := range b.Kernel.HugePages {
		if h.Device != nil {
			number, ok := n.numaNode(*h.Device)
			if !ok {
				continue
			}
			h.Node, h.Device = &number, nil
		}
		placed.Kernel.HugePages = addPages(placed.Kernel.HugePages, h)
	}
	return &placed, n.wanted.Problems
}

// addPages adds pages to those of their size on their NUMA node.
func addPages(all []blueprint.HugePages, h blueprint.HugePages) []blueprint.HugePages {
	i := slices.IndexFunc(all, func(o blueprint.HugePages) bool {
		return o.Size == h.Size && o.Node != nil && h.Node != nil && *o.Node == *h.Node
	})
	if i < 0 {
		return append(all, h)
	}
	all[i].Count += h.Count
	return all
}

// numaNode returns the NUMA node of a function, or records the reason why it is unknown.
func (n *node) numaNode(a pci.Address) (number int, ok bool) {
	code, fix := rule.NUMANodeUnknown, "set node instead of device"
	what := fmt.Sprintf("the NUMA node of %s is unknown, because an image has no functions", a)
	if n.platform.Live {
		text, there := n.text(hugePagesPart, function(a, "numa_node"))
		number, err := strconv.Atoi(text)
		switch {
		// The kernel shows -1 if the firmware names no NUMA node (NUMA_NO_NODE).
		case there && err == nil && number >= 0:
			return number, true
		case there && n.hasOneNUMANode():
			return 0, true
		case there:
			what = fmt.Sprintf("the firmware does not say on which NUMA node %s is", a)
		default:
			code, what, fix = rule.Absent, fmt.Sprintf("the node has no function %s", a), "correct the blueprint"
		}
	}
	n.problem(state.Problem{
		Part: hugePagesPart, Code: code, Fatal: true, Path: function(a, "numa_node"), Text: "kernel.hugePages: " + what, Fix: fix,
	})
	return 0, false
}

// hasOneNUMANode reports whether the machine has a single NUMA node. The firmware of such a machine often names none.
func (n *node) hasOneNUMANode() bool {
	_, more := n.text(hugePagesPart, numaNode(1)+"/meminfo")
	return !more
}

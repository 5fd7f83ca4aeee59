package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// What a pass was made of: a pass without evidence asks to be believed.

// maxShown is how many of a rule's objects that are in order its pass shows; the
// rest is counted. A node may have thousands that say the same.
const maxShown = 8

// showing adds to a pass what was read of the first objects that it is about. Of the
// others nothing is asked. What is no pass has its own evidence, and stays.
func showing[T any](found []finding.Finding, objects []T, read func(T) []facts.Fact) []finding.Finding {
	if len(found) != 1 || found[0].State != finding.Pass {
		return found
	}
	shown := objects[:min(len(objects), maxShown)]
	var seen []facts.Fact
	for _, object := range shown {
		for _, f := range read(object) {
			if !slices.Contains(seen, f) {
				seen = append(seen, f)
			}
		}
	}
	found[0].Evidence = append(found[0].Evidence, evidence(seen)...)
	found[0].LeftOut = len(objects) - len(shown)
	return found
}

// one makes a reader of one fact a reader for [showing].
func one[T any](read func(T) facts.Fact) func(T) []facts.Fact {
	return func(object T) []facts.Fact { return []facts.Fact{read(object)} }
}

// itself is a fact that was kept.
func itself(f facts.Fact) facts.Fact { return f }

// groupOf returns the link that says which group a function is in.
func groupOf(f *device.Function) facts.Fact {
	seen := facts.Fact{Path: "/sys/bus/pci/devices/" + f.Address.String() + "/iommu_group", How: "link"}
	if f.Group == nil {
		seen.Status = facts.Absent
		return seen
	}
	seen.Value = strconv.Itoa(*f.Group)
	return seen
}

// upstream returns the ports above a function.
func upstream(n *facts.Node, f *device.Function) []*device.Function {
	var above []*device.Function
	for _, a := range f.Upstream {
		if p, ok := n.Snapshot.Function(a); ok {
			above = append(above, p)
		}
	}
	return above
}

// above says what kinds of ports are above a function, by their Express capabilities.
func above(n *facts.Node, f *device.Function) []facts.Fact {
	seen := []facts.Fact{attribute(f.Address, "class", f.Class.String())}
	for _, p := range upstream(n, f) {
		if express := p.Capabilities.Express; express != nil {
			seen = append(seen, config(p.Address, fmt.Sprintf("PCI Express capability, port type %d", express.Type)))
		}
	}
	return seen
}

// way returns a reader of the ACS registers of the ports above a function, and of
// the group that the kernel made of that.
func way(n *facts.Node) func(*device.Function) []facts.Fact {
	return func(f *device.Function) []facts.Fact {
		seen := []facts.Fact{groupOf(f)}
		for _, p := range upstream(n, f) {
			seen = append(seen, acsRegisters(p))
		}
		return seen
	}
}

// switched returns whether capabilities of a function that software switches are on:
// names are those of lspci.
func switched(f *device.Function, names ...string) []facts.Fact {
	var words []string
	for _, name := range names {
		c := map[string]*pci.Switchable{"ATS": f.Capabilities.ATS, "PRI": f.Capabilities.PRI, "PASID": f.Capabilities.PASID, "DPC": f.Capabilities.DPC}[name]
		switch {
		case c == nil:
			words = append(words, "no "+name+" capability")
		case c.Enabled:
			words = append(words, fmt.Sprintf("%s capability, control 0x%04x (enabled)", name, c.Control))
		default:
			words = append(words, fmt.Sprintf("%s capability, control 0x%04x (disabled)", name, c.Control))
		}
	}
	return []facts.Fact{config(f.Address, strings.Join(words, ", "))}
}

// groupFile returns a reader of a file of a function's group.
func groupFile(n *facts.Node, name string) func(*device.Function) []facts.Fact {
	return func(f *device.Function) []facts.Fact {
		if f.Group == nil {
			return []facts.Fact{groupOf(f)}
		}
		return []facts.Fact{n.Read(fmt.Sprintf("sys/kernel/iommu_groups/%d/%s", *f.Group, name))}
	}
}

// attributeFile returns a reader of a function's attribute, from the node.
func attributeFile(n *facts.Node, name string) func(*device.Function) []facts.Fact {
	return func(f *device.Function) []facts.Fact {
		return []facts.Fact{n.Read("sys/bus/pci/devices/" + f.Address.String() + "/" + name)}
	}
}

// resetMethods is what the kernel can reset a function by.
func resetMethods(f *device.Function) facts.Fact {
	return attribute(f.Address, "reset_method", strings.Join(f.ResetMethods, " "))
}

// functionsAt returns the functions with the addresses.
func functionsAt(n *facts.Node, addrs []pci.Address) []*device.Function {
	var all []*device.Function
	for _, a := range addrs {
		if f, ok := n.Snapshot.Function(a); ok {
			all = append(all, f)
		}
	}
	return all
}

// nowhere is the answer of a place that nothing is at.
func nowhere(path string) facts.Fact {
	return facts.Fact{Path: path, Status: facts.Absent, How: "list"}
}

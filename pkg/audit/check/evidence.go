package check

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// attribute returns a fact that the scan read, as evidence: the path of a function's attribute, and its content.
func attribute(a pci.Address, name, value string) facts.Fact {
	return facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/%s", a, name), Value: value, How: "read"}
}

// link is attribute for a symbolic link of a function: its driver, its group.
func link(a pci.Address, name, value string) facts.Fact {
	f := attribute(a, name, value)
	f.How = "link"
	return f
}

// config is attribute for a register of configuration space.
func config(a pci.Address, value string) facts.Fact {
	f := attribute(a, "config", value)
	f.How, f.Needs = "config", facts.OfConfigSpace
	return f
}

// nowhere returns a fact for a path that does not exist.
func nowhere(path string) facts.Fact {
	return facts.Fact{Path: path, Status: facts.Absent, How: "list"}
}

func evidence(seen []facts.Fact) []rule.Evidence {
	var all []rule.Evidence
	for _, f := range seen {
		all = append(all, f.Evidence())
	}
	return all
}

// groupFact returns the link that says which group a function is in.
func groupFact(f *device.Function) facts.Fact {
	if f.Group == nil {
		seen := link(f.Address, "iommu_group", "")
		seen.Status = facts.Absent
		return seen
	}
	return link(f.Address, "iommu_group", strconv.Itoa(*f.Group))
}

// groupFile returns a reader of a file of a function's group.
func groupFile(n *facts.Node, name string) func(*device.Function) []facts.Fact {
	return func(f *device.Function) []facts.Fact {
		if f.Group == nil {
			return []facts.Fact{groupFact(f)}
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

// resetMethods returns the methods by which the kernel can reset a function.
func resetMethods(f *device.Function) facts.Fact {
	return attribute(f.Address, "reset_method", strings.Join(f.ResetMethods, " "))
}

// acsRegisters returns the content of a function's ACS registers.
func acsRegisters(f *device.Function) facts.Fact {
	switch acs := f.Capabilities.ACS; {
	case acs != nil:
		return config(f.Address, fmt.Sprintf("ACS capability 0x%04x, control 0x%04x (%s)", acs.Capability, acs.Control, cmp.Or(isolation.ACSNames(acs.Control), "all off")))
	case f.Capabilities.Truncated:
		return notReadable(f)
	}
	return config(f.Address, "no ACS capability")
}

// notReadable is the fact that extended capabilities could not be read: the process lacks a privilege, or the device does
// not answer, in which case no privilege helps.
func notReadable(f *device.Function) facts.Fact {
	if f.ConfigDead {
		return config(f.Address, "all ones")
	}
	seen := config(f.Address, "")
	seen.Status, seen.Err = facts.Denied, "configuration space is readable in part only"
	return seen
}

// unread is the answer if the configuration space of a function could not be read.
func unread(what string, f *device.Function) Answer {
	if f.ConfigDead {
		what += ": " + f.Address.String() + " does not answer"
	}
	return unknown(what, notReadable(f))
}

// above returns the types of the ports above a function, by their Express capabilities.
func above(n *facts.Node, f *device.Function) []facts.Fact {
	seen := []facts.Fact{attribute(f.Address, "class", f.Class.String())}
	for _, p := range upstream(n, f) {
		if express := p.Capabilities.Express; express != nil {
			seen = append(seen, config(p.Address, fmt.Sprintf("PCI Express capability, port type %d", express.Type)))
		}
	}
	return seen
}

// way returns a reader of a function's path: the ACS registers of the ports above it, and the group that the kernel derived from them.
func way(n *facts.Node) func(*device.Function) []facts.Fact {
	return func(f *device.Function) []facts.Fact {
		seen := []facts.Fact{groupFact(f)}
		for _, p := range upstream(n, f) {
			seen = append(seen, acsRegisters(p))
		}
		return seen
	}
}

// capability returns a capability that software can switch on and off, by lspci's name.
func capability(f *device.Function, name string) *pci.Switchable {
	switch name {
	case "ATS":
		return f.Capabilities.ATS
	case "PRI":
		return f.Capabilities.PRI
	case "PASID":
		return f.Capabilities.PASID
	}
	return f.Capabilities.DPC
}

// switched returns facts that say whether capabilities of a function are on. names are lspci's names of capabilities that software
// can switch on and off.
func switched(f *device.Function, names ...string) []facts.Fact {
	var words []string
	for _, name := range names {
		switch c := capability(f, name); {
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

func driverFact(f *device.Function) facts.Fact {
	seen := link(f.Address, "driver", f.Driver)
	if f.Driver == "" {
		seen.Status = facts.Absent
	}
	return seen
}

func overrideFact(f *device.Function) facts.Fact {
	return attribute(f.Address, "driver_override", cmp.Or(f.DriverOverride, "(null)"))
}

// boundBy is a function's driver and its override.
func boundBy(f *device.Function) []facts.Fact { return []facts.Fact{driverFact(f), overrideFact(f)} }

func recordFact(rec *journal.Record, value string) facts.Fact {
	return facts.Fact{Path: "/" + journal.DefaultDir + "/" + rec.ID() + ".json", Value: value, How: "journal"}
}

// stateFact is a claim's state in the journal.
func stateFact(rec *journal.Record) facts.Fact { return recordFact(rec, string(rec.State)) }

// claimName names a record's claim: "claim t1/train".
func claimName(rec *journal.Record) string {
	ref := rec.Plan.Claim
	if ref.Name == "" {
		return "claim " + ref.UID
	}
	return "claim " + ref.Namespace + "/" + ref.Name
}

// processName names a process: "pid 4711 (qemu)".
func processName(p *vfio.Usage) string { return fmt.Sprintf("pid %d (%s)", p.PID, p.Comm) }

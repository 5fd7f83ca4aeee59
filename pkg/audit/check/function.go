package check

import (
	"fmt"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// assignable returns the functions that tenants have or can get.
func assignable(n *facts.Node) []*device.Function {
	var found []*device.Function
	for _, f := range n.Functions() {
		if n.IsAvailable(f.Address) {
			found = append(found, f)
		}
	}
	return found
}

// each judges every function that tenants have or can get. The rule passes if
// there is one and nothing is found.
func each(n *facts.Node, judge func(*device.Function) []finding.Finding) []finding.Finding {
	functions := assignable(n)
	var found []finding.Finding
	for _, f := range functions {
		found = append(found, about(f, judge(f))...)
	}
	return orPass(found, len(functions))
}

// orPass returns what was found, or a pass that says how many functions were
// looked at.
func orPass(found []finding.Finding, functions int) []finding.Finding {
	switch {
	case functions == 0:
		return notApplicable("tenants can get no function of this node")
	case len(found) == 0:
		return pass(count(functions, "function"))
	}
	return found
}

// port is a port above functions that tenants have or can get.
type port struct {
	*device.Function
	below []pci.Address
}

// ports returns the ports on the ways of such functions, by address.
func ports(n *facts.Node) []*port {
	var all []*port
	known := map[pci.Address]*port{}
	for _, f := range assignable(n) {
		for _, a := range f.Upstream {
			if known[a] == nil {
				p, ok := n.Snapshot.Function(a)
				if !ok {
					continue
				}
				known[a] = &port{Function: p}
				all = append(all, known[a])
			}
			known[a].below = append(known[a].below, f.Address)
		}
	}
	return all
}

// attribute returns a fact that the scan read, as evidence: the path of a
// function's attribute, and what it said.
func attribute(a pci.Address, name, value string) facts.Fact {
	return facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/%s", a, name), Value: value, How: "read"}
}

// config is attribute for a register of configuration space.
func config(a pci.Address, value string) facts.Fact {
	f := attribute(a, "config", value)
	f.How, f.Needs = "config", facts.OfConfigSpace
	return f
}

// acsRegisters returns what a function's ACS registers say.
func acsRegisters(f *device.Function) facts.Fact {
	switch acs := f.Capabilities.ACS; {
	case acs != nil:
		return config(f.Address, fmt.Sprintf("ACS capability 0x%04x, control 0x%04x (%s)", acs.Capability, acs.Control, orElse(isolation.ACSNames(acs.Control), "all off")))
	case f.Capabilities.Truncated:
		return notReadable(f)
	}
	return config(f.Address, "no ACS capability")
}

// notReadable says that extended capabilities could not be read.
func notReadable(f *device.Function) facts.Fact {
	seen := config(f.Address, "")
	seen.Status, seen.Err = facts.Denied, "configuration space is readable in part only"
	return seen
}

// because makes findings of the verdict's reasons or notes with the code, each
// once for all functions that have it from the same culprit.
func because(n *facts.Node, code isolation.Code, culprit func(*isolation.Reason) bool) []finding.Finding {
	var found []finding.Finding
	at := map[pci.Address]int{}
	for _, f := range assignable(n) {
		v := n.Verdict(f)
		for _, r := range slices.Concat(v.Reasons, v.Notes) {
			if r.Code != code || culprit != nil && !culprit(&r) {
				continue
			}
			who := f.Address
			if r.Culprit != nil {
				who = *r.Culprit
			}
			if i, ok := at[who]; ok {
				found[i].Devices = append(found[i].Devices, f.Address)
				continue
			}
			at[who] = len(found)
			found = append(found, reasonFinding(f, &r))
		}
	}
	return found
}

// reasonFinding turns a reason of a verdict into a finding.
func reasonFinding(f *device.Function, r *isolation.Reason) finding.Finding {
	made := finding.Finding{State: finding.Fail, Text: r.Text, Remediation: r.Fix, Devices: []pci.Address{f.Address}}
	if r.Culprit != nil && *r.Culprit != f.Address {
		made.Object = "port " + r.Culprit.String()
	} else {
		made.Device = new(f.Address)
	}
	for _, e := range r.Evidence {
		seen := facts.Fact{Path: e.Path, Value: e.Value, How: "read"}
		if path.Base(e.Path) == "config" {
			seen.How, seen.Needs = "config", facts.OfConfigSpace
		}
		made.Evidence = append(made.Evidence, seen.Evidence())
	}
	return made
}

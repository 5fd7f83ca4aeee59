package check

import (
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// functionsWhere returns the functions of the node, including ports, for which so is true.
func functionsWhere(n *facts.Node, so func(*device.Function) bool) []*device.Function {
	var found []*device.Function
	for i := range n.Snapshot.Functions {
		if f := &n.Snapshot.Functions[i]; so(f) {
			found = append(found, f)
		}
	}
	return found
}

// anyFunction is for functionsWhere.
func anyFunction(*device.Function) bool { return true }

// isPrepared reports whether the record's functions are as its claim needs them. In other states the plugin changes them, and after a
// reboot they are as the kernel made them.
func isPrepared(n *facts.Node, rec *journal.Record) bool {
	return rec.State == journal.Prepared && n.IsThisBoot(rec)
}

func onVFIODriver(f *device.Function) bool { return device.IsVFIO(f.Driver) }

// assignable returns the functions that tenants hold or can get.
func assignable(n *facts.Node) []*device.Function {
	return slices.Clone(facts.Memo(n, assignableFunctions{}, func() []*device.Function { // most rules need this list
		return slices.DeleteFunc(n.Functions(), func(f *device.Function) bool { return !n.IsAvailable(f.Address) })
	}))
}

// assignableFunctions is the key of what assignable keeps.
type assignableFunctions struct{}

// noneAssignable is the reason why rules about assignable functions don't apply to a node.
const noneAssignable = "the node has no assignable function"

// each judges every function that tenants hold or can get. A pass shows the facts that read returns.
func each(n *facts.Node, read func(*device.Function) []facts.Fact, judge func(*device.Function) Answer) Answer {
	return ofAssignable(n, over(assignable(n), func(f *device.Function) Answer { return judge(f).on(f) }), read)
}

// ofAssignable ends a rule about all functions that tenants hold or can get.
func ofAssignable(n *facts.Node, found Answer, read func(*device.Function) []facts.Fact) Answer {
	return conclude(found, assignable(n), "function", noneAssignable, read)
}

// upstream returns the ports above a function.
func upstream(n *facts.Node, f *device.Function) []*device.Function {
	return functionsAt(n, f.Upstream)
}

// port is a port above functions that tenants have or can get.
type port struct {
	function *device.Function
	below    []pci.Address
}

// ports returns the ports above such functions, in the order of the functions.
func ports(n *facts.Node) []*port {
	var all []*port
	known := map[pci.Address]*port{}
	for _, f := range assignable(n) {
		for _, p := range upstream(n, f) {
			if known[p.Address] == nil {
				known[p.Address] = &port{function: p}
				all = append(all, known[p.Address])
			}
			known[p.Address].below = append(known[p.Address].below, f.Address)
		}
	}
	return all
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

// addresses returns those of functions.
func addresses(functions []*device.Function) []pci.Address {
	var all []pci.Address
	for _, f := range functions {
		all = append(all, f.Address)
	}
	return all
}

// words returns addresses as text.
func words(addrs []pci.Address) []string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return all
}

// because returns findings for the reasons and notes with the code in the judgments on assignable functions. Functions with the
// same culprit share one finding.
func because(n *facts.Node, code rule.Code, culprit func(*rule.Verdict) bool) Answer {
	var found Answer
	at := map[pci.Address]int{}
	for _, f := range assignable(n) {
		v := n.Judgment(f)
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
func reasonFinding(f *device.Function, r *rule.Verdict) finding.Finding {
	made := finding.Finding{State: finding.Fail, Text: r.Text, Remediation: r.Fix, Devices: []pci.Address{f.Address}}
	if r.Culprit != nil && *r.Culprit != f.Address {
		made.Object = "port " + r.Culprit.String()
	} else {
		made.Device = new(f.Address)
	}
	for _, e := range r.Evidence {
		e.How = "read"
		if path.Base(e.Path) == "config" {
			e.How, e.Needs = "config", facts.OfConfigSpace
		}
		made.Evidence = append(made.Evidence, e)
	}
	return made
}

package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// judgeSpecs asks about each spec that can be read, and adds those that can't be.
func judgeSpecs(n *facts.Node, what string, wrong func(*facts.Spec) []finding.Finding) []finding.Finding {
	all, dirs := n.Specs()
	var found []finding.Finding
	for i := range all {
		s := &all[i]
		said := unknown(what+" in "+s.File.Path, s.File)
		if s.File.OK() {
			said = wrong(s)
		}
		for _, f := range said {
			f.Object = s.File.Path
			found = append(found, f)
		}
	}
	for _, d := range dirs {
		if !d.Known() {
			found = append(found, unknown(what, d)...)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case len(all) == 0:
		return notApplicable("there are no CDI specs", dirs...)
	}
	return pass(count(len(all), "CDI spec"), dirs...)
}

// specFact is what is evidence of a spec: which devices it gives.
func specFact(n *facts.Node, s *facts.Spec) facts.Fact {
	var nodes []string
	for _, g := range n.Gives(s) {
		nodes = append(nodes, g.Path)
	}
	return facts.Fact{Path: s.File.Path, Value: strings.TrimSpace(s.Content.Kind + " " + strings.Join(slices.Compact(nodes), " ")), How: "read"}
}

// reach returns the functions that a spec's nodes lead to, some more than once. A
// mount of the directory of nodes leads to all that VFIO has.
func reach(n *facts.Node, s *facts.Spec) []pci.Address {
	var devices []pci.Address
	for _, g := range n.Gives(s) {
		if g.Mount && slices.Contains([]string{"/dev", "/dev/vfio", "/dev/vfio/devices"}, g.Path) {
			devices = append(devices, withVFIO(n)...)
		}
		devices = append(devices, n.NodeOf(g.Path)...)
	}
	return devices
}

// withVFIO returns all functions that VFIO's drivers have.
func withVFIO(n *facts.Node) []pci.Address {
	var devices []pci.Address
	for i := range n.Snapshot.Functions {
		if f := &n.Snapshot.Functions[i]; device.IsVFIO(f.Driver) {
			devices = append(devices, f.Address)
		}
	}
	return devices
}

// claimOf returns the record of the claim that a spec is of; nil for none that has
// a spec: it is written before a claim counts as prepared, and removed while it is
// released.
func claimOf(n *facts.Node, s *facts.Spec) *journal.Record {
	rec, ok := n.Record(s.Claim)
	if !ok || !n.IsThisBoot(rec) {
		return nil
	}
	if rec.State == journal.Cleaned || rec.State == journal.Quarantined {
		return nil
	}
	return rec
}

func specsAreOurs(n *facts.Node) []finding.Finding {
	return judgeSpecs(n, "which VFIO nodes are given", func(s *facts.Spec) []finding.Finding {
		given := n.Gives(s)
		if len(given) == 0 {
			return nil
		}
		seen := specFact(n, s)
		rec := claimOf(n, s)
		switch {
		case s.Claim == "" || s.Content.Kind != cdi.Kind:
			return reaching(n, s, fail(fmt.Sprintf("a spec of %s, which is not the plugin's, gives %s", orElse(s.Content.Kind, "no kind"), seen.Value), seen))
		case rec == nil:
			return nil // CDI-004's
		}
		for _, g := range given {
			if !isOf(n, rec, &g) {
				f := fail(fmt.Sprintf("the spec of %s gives %s, which is not of its functions", claimName(rec), g.Path), seen)
				return reaching(n, s, f, rec.Plan.Addresses()...)
			}
		}
		return nil
	})
}

// isOf reports whether a node leads to functions of the claim alone, or is a
// control node.
func isOf(n *facts.Node, rec *journal.Record, g *facts.Given) bool {
	if g.Mount {
		return false // the plugin mounts nothing
	}
	if g.IsControl() {
		return true
	}
	behind := n.NodeOf(g.Path)
	if len(behind) == 0 {
		return wasOf(n, rec, g)
	}
	return !slices.ContainsFunc(behind, func(a pci.Address) bool {
		_, ok := rec.Plan.Function(a)
		return !ok
	})
}

// wasOf reports whether a node that nobody is behind any more is one that the claim
// was given: its function has left VFIO or the bus, which OBS-005 tells of. The record
// knows a group's node by its number. Of iommufd's nodes it knows none, so that one
// of the same CDI device must be missing.
func wasOf(n *facts.Node, rec *journal.Record, g *facts.Given) bool {
	for i := range rec.Plan.Functions {
		if group := rec.Plan.Functions[i].Group; g.Path == vfio.GroupNode(group) || g.Path == vfio.NoIOMMUNode(group) {
			return true
		}
	}
	if !strings.HasPrefix(g.Path, vfio.DeviceNode("")) {
		return false
	}
	return slices.ContainsFunc(rec.Plan.Devices, func(d plan.Device) bool {
		return cdi.DeviceName(rec.ID(), d.Name) == g.Device && slices.ContainsFunc(d.Give, func(a pci.Address) bool {
			f, ok := n.Snapshot.Function(a)
			return !ok || f.Children.VFIO == ""
		})
	})
}

// reaching adds the functions that a spec leads to, and those of others that are
// concerned.
func reaching(n *facts.Node, s *facts.Spec, found []finding.Finding, others ...pci.Address) []finding.Finding {
	devices := append(reach(n, s), others...)
	slices.SortFunc(devices, pci.Address.Compare)
	return concerning(slices.Compact(devices), found)
}

// specsDontOverlap compares files with one another: within one, a group's node may
// be there for each of its functions.
func specsDontOverlap(n *facts.Node) []finding.Finding {
	first := map[string]string{} // the file, by qualified name or node
	return judgeSpecs(n, "what is given twice", func(s *facts.Spec) []finding.Finding {
		mine := map[string]string{}
		for _, d := range s.Content.Devices {
			mine["CDI device "+s.Content.Kind+"="+d.Name] = s.File.Path
		}
		for _, g := range n.Gives(s) {
			if !g.IsControl() {
				mine[g.Path] = s.File.Path
			}
		}
		var found []finding.Finding
		for _, what := range slices.Sorted(maps.Keys(mine)) {
			if other, twice := first[what]; twice {
				found = append(found, reaching(n, s, fail(fmt.Sprintf("%s is in %s and in %s", what, other, s.File.Path), specFact(n, s)))...)
				continue
			}
			first[what] = mine[what]
		}
		return found
	})
}

func noStaleSpecs(n *facts.Node) []finding.Finding {
	return judgeSpecs(n, "which claims have specs", func(s *facts.Spec) []finding.Finding {
		if s.Claim == "" || claimOf(n, s) != nil {
			return nil
		}
		for _, damaged := range n.Damaged {
			if strings.HasSuffix(damaged.Path, "/"+s.Claim+".json") {
				return unknown("whether claim "+s.Claim+" is prepared", damaged)
			}
		}
		journal := n.Journal()
		if !journal.Known() {
			return unknown("whether claim "+s.Claim+" is prepared", journal)
		}
		return reaching(n, s, fail(fmt.Sprintf("claim %s is not prepared, and has a spec", s.Claim), specFact(n, s)))
	})
}

func controlNodesAsked(n *facts.Node) []finding.Finding {
	return judgeSpecs(n, "who is given control nodes", func(s *facts.Spec) []finding.Finding {
		rec := claimOf(n, s)
		if rec == nil {
			return nil // another check's
		}
		for _, g := range n.Gives(s) {
			if g.IsControl() && !asksControl(rec, g.Device) {
				return reaching(n, s, fail(fmt.Sprintf("the spec of %s gives %s, which its class does not ask for", claimName(rec), g.Path), specFact(n, s)))
			}
		}
		return nil
	})
}

func asksControl(rec *journal.Record, device string) bool {
	for i := range rec.Plan.Devices {
		if d := &rec.Plan.Devices[i]; cdi.DeviceName(rec.ID(), d.Name) == device {
			return d.ControlNode
		}
	}
	return false
}

func namesArePerClaim(n *facts.Node) []finding.Finding {
	return judgeSpecs(n, "which names there are", func(s *facts.Spec) []finding.Finding {
		for _, g := range n.Gives(s) {
			if g.Device != "" && (s.Claim == "" || !strings.HasPrefix(g.Device, s.Claim)) {
				return reaching(n, s, fail(fmt.Sprintf("%s=%s gives %s to whoever names it", s.Content.Kind, g.Device, g.Path), specFact(n, s)))
			}
		}
		return nil
	})
}

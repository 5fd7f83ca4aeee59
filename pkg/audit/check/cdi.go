package check

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// cdiChecks returns the checks of group CDI: runtimes inject only devices that the plugin wrote for prepared claims.
func cdiChecks() []Check {
	return []Check{
		{ID: "CDI-001", Judge: specsAreRoots},
		{ID: "CDI-002", Judge: specsAreOurs},
		{ID: "CDI-003", Judge: specsDontOverlap},
		{ID: "CDI-004", Judge: noStaleSpecs},
		{ID: "CDI-005", Judge: specsAreHarmless},
		{ID: "CDI-006", Judge: controlNodesAsked},
		{ID: "CDI-007", Judge: namesArePerClaim},
	}
}

func specsAreRoots(n *facts.Node) Answer {
	specs, dirs := runtimes.Specs(n)
	paths := listPaths(dirs)
	for i := range specs {
		paths = append(paths, specs[i].File.Path)
	}
	return rootsAlone(n, "path of a spec", toWrite(), paths)
}

// judgeSpecs judges each readable spec, and adds an unknown finding for each other one.
func judgeSpecs(n *facts.Node, what string, wrong func(*facts.Spec) Answer) Answer {
	all, dirs := runtimes.Specs(n)
	found := over(all, func(s facts.Spec) Answer {
		if !s.File.OK() {
			return unknown(what+" in "+s.File.Path, s.File).object(s.File.Path)
		}
		return wrong(&s).object(s.File.Path)
	})
	for _, d := range dirs {
		if !d.Known() {
			found = append(found, unknown(what, d)...)
		}
	}
	if len(all) == 0 {
		return found.or(notApplicable("the node has no CDI specs", dirs...))
	}
	return found.or(pass(count(len(all), "CDI spec"), dirs...))
}

// specFact is the evidence of a spec: the device nodes that it gives.
func specFact(n *facts.Node, s *facts.Spec) facts.Fact {
	var nodes []string
	for _, g := range n.Gives(s) {
		nodes = append(nodes, g.Path)
	}
	return facts.Fact{Path: s.File.Path, Value: strings.TrimSpace(s.Content.Kind + " " + strings.Join(slices.Compact(nodes), " ")), How: "read"}
}

// reach returns the functions behind a spec's nodes, some more than once. A mount of the directory of nodes gives all
// functions on VFIO.
func reach(n *facts.Node, s *facts.Spec) []pci.Address {
	var devices []pci.Address
	for _, g := range n.Gives(s) {
		if g.Mount && slices.Contains([]string{"/dev", "/dev/vfio", "/dev/vfio/devices"}, g.Path) {
			devices = append(devices, addresses(functionsWhere(n, (*device.Function).OnVFIO))...)
		}
		devices = append(devices, n.Behind(g.Path)...)
	}
	return devices
}

// findClaim returns the record of a spec's claim, or nil. The spec is written before a claim counts as prepared, and
// removed during its release.
func findClaim(n *facts.Node, s *facts.Spec) *journal.Record {
	rec, ok := n.Record(s.Claim)
	if !ok || !n.IsThisBoot(rec) {
		return nil
	}
	if rec.State == journal.Cleaned || rec.State == journal.Quarantined {
		return nil
	}
	return rec
}

func specsAreOurs(n *facts.Node) Answer {
	return judgeSpecs(n, "the VFIO nodes", func(s *facts.Spec) Answer {
		given := n.Gives(s)
		if len(given) == 0 {
			return nil
		}
		seen := specFact(n, s)
		rec := findClaim(n, s)
		switch {
		case s.Claim == "" || s.Content.Kind != cdi.Kind:
			return reaching(n, s, fail(fmt.Sprintf("a spec of %s, not written by the plugin, gives %s", cmp.Or(s.Content.Kind, "unknown kind"), seen.Value), seen))
		case rec == nil:
			return nil // CDI-004's
		}
		for _, g := range given {
			if !belongsTo(n, rec, &g) {
				f := fail(fmt.Sprintf("the spec of %s gives %s, which is not one of its functions", claimName(rec), g.Path), seen)
				return reaching(n, s, f, rec.Plan.Addresses()...)
			}
		}
		return nil
	})
}

// belongsTo reports whether a node leads to functions of the claim alone, or is a
// control node.
func belongsTo(n *facts.Node, rec *journal.Record, g *facts.Given) bool {
	if g.Mount {
		return false // the plugin mounts nothing
	}
	if g.IsControl() {
		return true
	}
	behind := n.Behind(g.Path)
	if len(behind) == 0 {
		return belongedTo(n, rec, g)
	}
	return !slices.ContainsFunc(behind, func(a pci.Address) bool {
		_, ok := rec.Plan.Function(a)
		return !ok
	})
}

// belongedTo reports whether a VFIO node without a function belonged to the claim, so that its function has left VFIO or the bus,
// which OBS-005 reports. The record shows the node of a group by the group's number. It does not have the numbers of iommufd's
// nodes. For these, a node of the same CDI device must be missing.
func belongedTo(n *facts.Node, rec *journal.Record, g *facts.Given) bool {
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

// reaching adds the functions that a spec gives access to, and the other affected functions.
func reaching(n *facts.Node, s *facts.Spec, found Answer, others ...pci.Address) Answer {
	devices := append(reach(n, s), others...)
	slices.SortFunc(devices, pci.Address.Compare)
	return found.reaching(slices.Compact(devices)...)
}

// specsDontOverlap compares files with one another. Within one file, each function of a group may name the group's node.
func specsDontOverlap(n *facts.Node) Answer {
	first := map[string]string{} // the file, by qualified name or node
	return judgeSpecs(n, "duplicate devices", func(s *facts.Spec) Answer {
		mine := map[string]string{}
		for _, d := range s.Content.Devices {
			mine["CDI device "+s.Content.Kind+"="+d.Name] = s.File.Path
		}
		for _, g := range n.Gives(s) {
			// Each claim whose class asks for the control nodes gets the same ones.
			if !g.IsControl() {
				mine[g.Path] = s.File.Path
			}
		}
		var found Answer
		for _, what := range slices.Sorted(maps.Keys(mine)) {
			if other, twice := first[what]; twice {
				found = append(found, reaching(n, s, fail(fmt.Sprintf("%s is in both %s and %s", what, other, s.File.Path), specFact(n, s)))...)
				continue
			}
			first[what] = mine[what]
		}
		return found
	})
}

func noStaleSpecs(n *facts.Node) Answer {
	return judgeSpecs(n, "the claims", func(s *facts.Spec) Answer {
		if s.Claim == "" || findClaim(n, s) != nil {
			return nil
		}
		for _, damaged := range n.Damaged {
			// The unreadable record is the record of this claim. So the claim may be prepared, and its VM may run.
			if strings.HasSuffix(damaged.Path, "/"+s.Claim+".json") {
				return unknown("whether claim "+s.Claim+" is prepared", damaged)
			}
		}
		dir := n.Journal()
		if !dir.Known() {
			return unknown("whether claim "+s.Claim+" is prepared", dir)
		}
		return reaching(n, s, fail(fmt.Sprintf("claim %s has a spec but is not prepared", s.Claim), specFact(n, s)))
	})
}

func controlNodesAsked(n *facts.Node) Answer {
	return judgeSpecs(n, "the control nodes", func(s *facts.Spec) Answer {
		rec := findClaim(n, s)
		if rec == nil {
			return nil // another check's
		}
		for _, g := range n.Gives(s) {
			if g.IsControl() && !asksControl(rec, g.Device) {
				return reaching(n, s, fail(fmt.Sprintf("the spec of %s gives %s, which its class does not request", claimName(rec), g.Path), specFact(n, s)))
			}
		}
		return nil
	})
}

func asksControl(rec *journal.Record, name string) bool {
	return slices.ContainsFunc(rec.Plan.Devices, func(d plan.Device) bool {
		return d.ControlNode && cdi.DeviceName(rec.ID(), d.Name) == name
	})
}

func namesArePerClaim(n *facts.Node) Answer {
	return judgeSpecs(n, "the device names", func(s *facts.Spec) Answer {
		for _, g := range n.Gives(s) {
			// Edits of the whole spec have no device name, because they apply with each of its devices.
			if g.Device != "" && (s.Claim == "" || !strings.HasPrefix(g.Device, s.Claim)) {
				return reaching(n, s, fail(fmt.Sprintf("%s=%s gives %s to anyone who names it", s.Content.Kind, g.Device, g.Path), specFact(n, s)))
			}
		}
		return nil
	})
}

// specsAreHarmless lists a spec's edits other than devices, unless they are known to be harmless.
func specsAreHarmless(n *facts.Node) Answer {
	return judgeSpecs(n, "the edits", func(s *facts.Spec) Answer {
		var odd []string
		for _, edits := range s.Edits() {
			odd = append(odd, oddEdits(s.Content.Kind, edits)...)
		}
		if len(odd) == 0 {
			return nil
		}
		slices.Sort(odd)
		odd = slices.Compact(odd)
		seen := facts.Fact{Path: s.File.Path, Value: strings.Join(odd, "; "), How: "read"}
		return reaching(n, s, fail(fmt.Sprintf("a spec of %s adds %s", cmp.Or(s.Content.Kind, "unknown kind"), shorten(odd)), seen))
	})
}

// shorten names the first few.
func shorten(all []string) string {
	const few = 3
	if len(all) <= few {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
}

// oddEdits returns the edits that are not known to be harmless. The plugin's own specs have only nodes and the address of
// an interface.
func oddEdits(kind string, e *cdispecs.ContainerEdits) []string {
	var odd []string
	for _, h := range e.Hooks {
		if h != nil && (kind == cdi.Kind || !knownHook(h)) {
			odd = append(odd, fmt.Sprintf("the %s hook %s", h.HookName, h.Path))
		}
	}
	for _, m := range e.Mounts {
		if m != nil && (kind == cdi.Kind || isSensitive(m.HostPath)) {
			odd = append(odd, "a mount of "+m.HostPath)
		}
	}
	for _, env := range e.Env {
		name, _, _ := strings.Cut(env, "=")
		if changesPrograms(name) || kind == cdi.Kind && !strings.HasPrefix(name, "KATA_VFIO_") {
			odd = append(odd, "the variable "+name)
		}
	}
	return odd
}

// knownHook reports whether a hook is one of NVIDIA's container toolkit, in a directory in which its packages or its
// operator install it.
func knownHook(h *cdispecs.Hook) bool {
	name := path.Base(h.Path)
	at := slices.Contains([]string{"/usr/bin", "/usr/local/bin", "/usr/local/nvidia/toolkit"}, path.Dir(path.Clean(h.Path)))
	return at && (name == "nvidia-ctk" || name == "nvidia-cdi-hook")
}

// changesPrograms reports whether a variable makes the container's programs load other code (ld.so(8)).
func changesPrograms(name string) bool {
	return name == "LD_PRELOAD" || name == "LD_AUDIT" || name == "PATH"
}

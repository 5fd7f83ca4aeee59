package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// anchorsByHand is the nodes' rule that K8S-027 answers in their place.
const anchorsByHand = "OBS-002"

// shownNodes is how many nodes a folded finding names.
const shownNodes = 8

// rolledUp returns what nodes' own checks found and somebody has to look at, each
// finding once, with the nodes that it is so on. Waivers count for each node's.
func (s *State) rolledUp(waivers []finding.Waiver, today string) []finding.Finding {
	folds := map[string]*fold{}
	var order []string
	reports := s.reports()
	for i := range reports {
		r := &reports[i]
		own := slices.Clone(r.Findings)
		finding.Apply(waivers, today, own)
		for j := range own {
			f := &own[j]
			if f.State == finding.Pass || f.State == finding.NotApplicable || f.ID == anchorsByHand && f.State == finding.Manual {
				continue
			}
			key := keyOf(f)
			if folds[key] == nil {
				folds[key] = &fold{finding: *f}
				order = append(order, key)
			}
			folds[key].add(r.Node, f)
		}
	}
	all := make([]finding.Finding, 0, len(order))
	for _, key := range order {
		all = append(all, folds[key].folded())
	}
	return all
}

// keyOf says what makes two nodes' findings the same: all that is said, but for
// whom it reaches.
func keyOf(f *finding.Finding) string {
	device := ""
	if f.Device != nil {
		device = f.Device.String()
	}
	waiver := ""
	if f.Waiver != nil {
		waiver = fmt.Sprint(*f.Waiver)
	}
	return strings.Join([]string{f.ID, string(f.State), string(f.Severity), device, f.Object, f.Text, f.Pending, f.Remediation, waiver}, "\x00")
}

// fold is one finding of several nodes.
type fold struct {
	finding finding.Finding
	nodes   []string
}

func (o *fold) add(node string, f *finding.Finding) {
	if !slices.Contains(o.nodes, node) {
		o.nodes = append(o.nodes, node)
	}
	if f.Exposure.Compare(o.finding.Exposure) < 0 {
		o.finding.Exposure = f.Exposure
	}
	for _, t := range f.Tenants {
		if !slices.Contains(o.finding.Tenants, t) {
			o.finding.Tenants = append(slices.Clone(o.finding.Tenants), t)
		}
	}
}

// folded names the nodes where a node's own report names the function: addresses
// are the same on many nodes. The evidence is the first node's.
func (o *fold) folded() finding.Finding {
	f := o.finding
	what := f.Object
	if f.Device != nil {
		what = f.Device.String()
	}
	f.Object = nodesWords(o.nodes)
	if what != "" {
		f.Object += ": " + what
	}
	f.Device = nil
	if len(o.nodes) > 1 {
		f.Devices = nil
	}
	slices.Sort(f.Tenants)
	f.Evidence = slices.Clone(f.Evidence)
	for i := range f.Evidence {
		f.Evidence[i].Path = "node " + o.nodes[0] + ": " + f.Evidence[i].Path
	}
	return f
}

func nodesWords(nodes []string) string {
	if len(nodes) == 1 {
		return "node " + nodes[0]
	}
	text := fmt.Sprintf("%d nodes (%s", len(nodes), strings.Join(nodes[:min(len(nodes), shownNodes)], ", "))
	if more := len(nodes) - shownNodes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ")"
}

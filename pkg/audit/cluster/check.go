package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Check judges a cluster by a rule.
type Check = finding.Check[*State, []finding.Finding]

// Catalogue returns all checks that a cluster's API answers, by number. The error is a defect of the build.
func Catalogue(all *rule.Catalogue) ([]Check, error) {
	return finding.Join(all.OfClusters(), slices.Concat(policyChecks(), podChecks(), requiredChecks(), accessChecks(), deviceChecks(), sliceChecks(), domainChecks(), allocationChecks(), classChecks(),
		pluginChecks(), nodeChecks(), promiseChecks()))
}

// Run runs the checks, adds the findings of the nodes' own audits, and returns the finished report. The caller sets the
// subject.
func Run(s *State, checks []Check, o finding.Options) *finding.Report {
	r := finding.Run(s, s, checks, o)
	folded, own := s.rolledUp(&o)
	r.UnusedWaivers = finding.Unused(o.Waivers, slices.Concat(r.Findings, own))
	r.Findings = append(r.Findings, folded...)
	r.Summary.Devices = len(s.Cluster.Devices())
	r.Finish()
	return r
}

// Expose counts the tenants that the finding names.
func (s *State) Expose(f *finding.Finding) { f.Exposure = s.exposure(f.Tenants) }

// exposure returns the exposure of a finding that affects the tenants. Without names, it affects all tenants that use our devices.
func (s *State) exposure(tenants []string) finding.Exposure {
	if len(tenants) == 0 {
		tenants = s.holding()
	}
	switch {
	case len(tenants) > 1:
		return finding.CrossTenant
	case len(tenants) == 1:
		return finding.Allocated
	case len(s.Cluster.Devices()) > 0:
		return finding.Published
	}
	return finding.Unexposed
}

// Lacks says which of the kinds could not be listed; empty if all were listed.
func (s *State) Lacks(kinds []string) string {
	for _, kind := range kinds {
		if why, ok := s.Missing[kind]; ok {
			return fmt.Sprintf("%s could not be listed: %s", kind, why)
		}
	}
	return ""
}

func pass(text string, seen ...rule.Evidence) []finding.Finding {
	return []finding.Finding{{State: finding.Pass, Text: text, Evidence: seen}}
}

func fail(object, text string, seen ...rule.Evidence) finding.Finding {
	return finding.Finding{State: finding.Fail, Object: object, Text: text, Evidence: seen}
}

func unknown(text string) []finding.Finding {
	return []finding.Finding{{State: finding.Unknown, Text: text}}
}

func notApplicable(text string) []finding.Finding {
	return []finding.Finding{{State: finding.NotApplicable, Text: text}}
}

// orPass returns the findings, or a pass if there are none.
func orPass(found []finding.Finding, text string, seen ...rule.Evidence) []finding.Finding {
	if len(found) > 0 {
		return found
	}
	return pass(text, seen...)
}

// saw is evidence from the API: "Pod t1/train spec.runtimeClassName".
func saw(object, value string) rule.Evidence {
	return rule.Evidence{Path: "api: " + object, Value: value, How: "api"}
}

// of marks findings as a tenant's.
func of(tenant string, f finding.Finding) finding.Finding {
	f.Tenants = []string{tenant}
	return f
}

// Short names of severities, for the lists of rules.
const (
	critical = rule.Critical
	high     = rule.High
	medium   = rule.Medium
	low      = rule.Low
)

// anchorsByHand is the rule for nodes that is manual there, and that K8S-027 answers for the cluster.
const anchorsByHand = "OBS-002"

// shownNodes is the number of nodes that a folded finding names.
const shownNodes = 8

// rolledUp returns the findings of nodes' own checks that need attention, each once, with the nodes that have it. own are all
// findings of the nodes' reports after the waivers, which apply to each node.
func (s *State) rolledUp(o *finding.Options) (folded, own []finding.Finding) {
	folds := map[string]*fold{}
	var order []string
	reports := s.reports()
	for i := range reports {
		r := &reports[i]
		found := slices.Clone(r.Report.Findings)
		finding.Apply(o.Waivers, o.Today, found)
		own = append(own, found...)
		for j := range found {
			f := &found[j]
			if f.State == finding.Pass || f.State == finding.NotApplicable || f.ID == anchorsByHand && f.State == finding.Manual {
				continue
			}
			key := findingKey(f)
			if folds[key] == nil {
				folds[key] = &fold{finding: *f}
				order = append(order, key)
			}
			folds[key].add(r.Node, f)
		}
	}
	folded = make([]finding.Finding, 0, len(order))
	for _, key := range order {
		folded = append(folded, folds[key].folded())
	}
	return folded, own
}

// findingKey identifies equal findings of several nodes, which may differ in the affected functions and tenants.
func findingKey(f *finding.Finding) string {
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
	// The lesser of two exposures is the wider one.
	if f.Exposure.Compare(o.finding.Exposure) < 0 {
		o.finding.Exposure = f.Exposure
	}
	for _, t := range f.Tenants {
		if !slices.Contains(o.finding.Tenants, t) {
			o.finding.Tenants = append(slices.Clone(o.finding.Tenants), t)
		}
	}
}

// folded returns the finding with the names of its nodes before its object or function, because many nodes have the same addresses.
// The evidence is that of the first node.
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

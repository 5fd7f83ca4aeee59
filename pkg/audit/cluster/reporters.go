package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
)

// sameRun is the longest time between two reports of a node that are compared for contradictions. A report in the name of another
// node must be later than that node's own report to replace it, and audits are repeated within this time.
const sameRun = 2 * time.Hour

// isNode reports whether a name is a node's in the cluster.
func (s *State) isNode(name string) bool { return s.Nodes[name] }

// credible returns the reports that may come from the nodes that they name, and a finding for each other report. Otherwise, a
// captured node could hide the failures of all nodes, or invent some.
func (s *State) credible() (reports []*finding.Report, refused []finding.Finding) {
	for _, r := range s.Reports {
		if f := s.refuse(r); f != nil {
			refused = append(refused, *f)
		} else {
			reports = append(reports, r)
		}
	}
	return reports, refused
}

// refuse returns a finding that says why a report does not count; nil if it counts.
func (s *State) refuse(r *finding.Report) *finding.Finding {
	node := fleet.FindNode(r, s.isNode)
	at, _ := time.Parse(time.RFC3339, r.Subject.Time) // checked when it was read
	var f finding.Finding
	switch of, known := s.Auditors[r.Source]; {
	case r.Source != "" && !known:
		f = fail("pod "+r.Source, fmt.Sprintf("pod %s wrote a report in the name of node %s, and is not an audit pod of the chart now: the report does not count", r.Source, node))
	case r.Source != "" && of != node:
		f = onNode(of, fmt.Sprintf("wrote a report in the name of node %s, by its pod %s: the report does not count", node, r.Source), saw("report of "+node, r.Subject.Time))
	case at.After(s.Now.Add(clockSkew)):
		f = onNode(node, "has a report from the future: a clock is wrong, and the report does not count", saw("report of "+node, r.Subject.Time))
	default:
		return nil
	}
	return &f
}

// agreed returns a node's report with the additional failures of other reports of the same run, if nothing proves which pod wrote
// them. So a failure that was repaired meanwhile counts a little longer, but another node can't hide a failure.
func agreed(r fleet.NodeReport) (fleet.NodeReport, []string) {
	known := map[concern]bool{}
	for i := range r.Report.Findings {
		if r.Report.Findings[i].State == finding.Fail {
			known[newConcern(&r.Report.Findings[i])] = true
		}
	}
	var contradicts []string
	merged := *r.Report
	for _, o := range r.Older {
		at, _ := time.Parse(time.RFC3339, o.Subject.Time)
		// If both reports name their pods, credible has compared the pods with the nodes, so the later report may clear a failure.
		if r.Report.Source != "" && o.Source != "" || r.At.Sub(at) > sameRun {
			continue
		}
		for i := range o.Findings {
			if f := &o.Findings[i]; f.State == finding.Fail && !known[newConcern(f)] {
				known[newConcern(f)] = true
				contradicts = append(contradicts, f.ID)
				merged = withFailure(merged, f)
			}
		}
	}
	slices.Sort(contradicts)
	r.Report = &merged
	return r, slices.Compact(contradicts)
}

// concern identifies findings of one node that are about the same: a rule, and a device or another object.
type concern struct{ id, device, object string }

func newConcern(f *finding.Finding) concern {
	k := concern{id: f.ID, object: f.Object}
	if f.Device != nil {
		k.device = f.Device.String()
	}
	return k
}

// withFailure returns a report in which a failure replaces the finding about the same device or object. It adjusts the counts. Passes stay
// counted: a report that was read has only their number, not the findings.
func withFailure(r finding.Report, f *finding.Finding) finding.Report {
	// The copy of the report shares its maps with the original, which other checks read.
	r.Summary.States, r.Summary.Failed = maps.Clone(r.Summary.States), maps.Clone(r.Summary.Failed)
	r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(o finding.Finding) bool {
		replaced := newConcern(&o) == newConcern(f)
		if replaced {
			r.Summary.States[o.State]--
		}
		return replaced
	})
	r.Findings = append(r.Findings, *f)
	r.Summary.States[finding.Fail]++
	r.Summary.Failed[f.Severity]++
	r.Summary.Verdict = finding.Fail
	return r
}

// contradictions returns a finding for each node whose reports contradict each other.
func (s *State) contradictions() []finding.Finding {
	var found []finding.Finding
	reports, _ := s.credible()
	for _, r := range fleet.LatestReports(reports, s.isNode) {
		if _, ids := agreed(r); len(ids) > 0 {
			found = append(found, onNode(r.Node, fmt.Sprintf(
				"has reports within %s that contradict each other: %s fails in one and not in the latest, and counts as failed. `kubectl logs --prefix` says which pod wrote a report",
				sameRun, strings.Join(ids, ", ")), saw("report of "+r.Node, r.Report.Subject.Time)))
		}
	}
	return found
}

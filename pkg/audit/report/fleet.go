package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Fleet is the posture of many nodes, and its trend: nodes by groups of rules, the worst first, with each node's
// change between its oldest and its latest report.
type Fleet struct {
	// Chosen is the period whose reports are used; nil for all reports.
	Chosen *Period `json:"chosen,omitempty"`
	// Unseen are the nodes that have reports, but none in the period.
	Unseen []string `json:"unseen,omitempty"`
	// Groups are the groups of rules that fail or have no answer on a node, in order.
	Groups []string `json:"groups"`
	// Nodes are the worst first.
	Nodes []fleetNode `json:"nodes"`
	// Checks are the checks that fail now, sorted by severity, the worst first, and then by the number of nodes.
	Checks []fleetCheck `json:"checks"`
}

// fleetCheck is a rule, and the nodes on which it fails now.
type fleetCheck struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Severity is the worst one: profiles may differ by node.
	Severity rule.Severity `json:"severity"`
	Nodes    []string      `json:"nodes"`
}

// fleetNode is one node's posture.
type fleetNode struct {
	Name string `json:"name"`
	// From and To are the times of its oldest and latest report, RFC 3339.
	From    string        `json:"from"`
	To      string        `json:"to"`
	Reports int           `json:"reports"`
	Verdict finding.State `json:"verdict"`
	// Before and Now count rules in the oldest and the latest report.
	Before tally `json:"before"`
	Now    tally `json:"now"`
	// Cells are the groups, in the order of [Fleet.Groups].
	Cells []fleetCell `json:"cells"`
	// Open are rules that fail or have no answer now.
	Open []openRule `json:"open"`
	// New are the rules that fail now and did not fail in the oldest report. Fixed are the rules that failed then and pass now. Unanswered
	// are those that failed then, and have no answer or were not checked now. A rule that a waiver accepts now is in none of them.
	New        []string `json:"new"`
	Fixed      []string `json:"fixed"`
	Unanswered []string `json:"unanswered"`
	// unanswered counts the rules of Unanswered by the severity with which they failed.
	unanswered map[rule.Severity]int
}

// tally counts the rules that fail, by severity, and those without an answer.
type tally struct {
	Fails    int                   `json:"fails"`
	Failed   map[rule.Severity]int `json:"failed"`
	NoAnswer int                   `json:"noAnswer"`
}

// fleetCell is a group of rules on a node.
type fleetCell struct {
	// Worst is the worst severity that fails; empty if none does.
	Worst rule.Severity `json:"worst,omitempty"`
	// OfWorst counts the rules that fail with the severity Worst. Fails counts all rules that fail.
	OfWorst  int `json:"ofWorst"`
	Fails    int `json:"fails"`
	NoAnswer int `json:"noAnswer"`
}

// openRule is a rule that fails or has no answer.
type openRule struct {
	ID       string        `json:"id"`
	Title    string        `json:"title"`
	State    finding.State `json:"state"`
	Severity rule.Severity `json:"severity"`
	Findings int           `json:"findings"`
}

// NewFleet returns the posture of the reports in a period, of which a node may have several.
func NewFleet(reports []*finding.Report, in Period) *Fleet {
	f := &Fleet{Groups: []string{}, Nodes: []fleetNode{}}
	if in != (Period{}) {
		f.Chosen = &in
	}
	every := func(string) bool { return true }
	seen := map[string]bool{}
	for _, latest := range fleet.LatestReports(in.reports(reports), every) {
		f.Nodes = append(f.Nodes, newFleetNode(&latest))
		seen[latest.Node] = true
	}
	// A node without a report in the period must not look like one that passes.
	for _, r := range fleet.LatestReports(reports, every) {
		if !seen[r.Node] {
			f.Unseen = append(f.Unseen, r.Node)
		}
	}
	for i := range f.Nodes {
		for _, o := range f.Nodes[i].Open {
			f.Groups = append(f.Groups, ruleGroup(o.ID))
		}
	}
	slices.Sort(f.Groups)
	f.Groups = slices.Compact(f.Groups)
	for i := range f.Nodes {
		f.Nodes[i].fill(f.Groups)
	}
	slices.SortStableFunc(f.Nodes, func(a, b fleetNode) int { return a.compare(&b) })
	f.Checks = failingChecks(f.Nodes)
	return f
}

func failingChecks(nodes []fleetNode) []fleetCheck {
	all, at := []fleetCheck{}, map[string]int{}
	for i := range nodes {
		for _, o := range nodes[i].Open {
			if o.State != finding.Fail {
				continue
			}
			j, ok := at[o.ID]
			if !ok {
				j, at[o.ID] = len(all), len(all)
				all = append(all, fleetCheck{ID: o.ID, Title: o.Title, Severity: o.Severity})
			}
			c := &all[j]
			// The severity may differ between nodes, because of their profiles and exposure. The worst severity counts.
			if o.Severity.Compare(c.Severity) < 0 {
				c.Severity = o.Severity
			}
			c.Nodes = append(c.Nodes, nodes[i].Name)
		}
	}
	slices.SortFunc(all, func(a, b fleetCheck) int {
		return cmp.Or(a.Severity.Compare(b.Severity), len(b.Nodes)-len(a.Nodes), cmp.Compare(a.ID, b.ID))
	})
	return all
}

func newFleetNode(r *fleet.NodeReport) fleetNode {
	oldest := r.Report
	for _, o := range r.Older {
		// The reports of a log have no order: several pods' lines mix.
		if reportTime(o).Before(reportTime(oldest)) {
			oldest = o
		}
	}
	before, now := openRules(oldest), openRules(r.Report)
	n := fleetNode{
		Name: r.Node, From: oldest.Subject.Time, To: r.Report.Subject.Time, Reports: 1 + len(r.Older), Verdict: r.Report.Summary.Verdict,
		Before: newTally(before), Now: newTally(now), Open: now, New: failsOnly(now, before),
		Fixed: []string{}, Unanswered: []string{}, unanswered: map[rule.Severity]int{},
	}
	n.follow(before, worstStates(r.Report))
	return n
}

// follow sorts the rules that failed by their states now.
func (n *fleetNode) follow(before []openRule, now map[string]finding.State) {
	for _, o := range before {
		if o.State != finding.Fail {
			continue
		}
		switch now[o.ID] {
		case finding.Fail, finding.Waived:
		case finding.Pass, finding.NotApplicable:
			n.Fixed = append(n.Fixed, o.ID)
		case finding.Unknown, finding.Error, finding.Manual, "": // "": it was not checked
			n.Unanswered = append(n.Unanswered, o.ID)
			n.unanswered[o.Severity]++
		}
	}
	slices.Sort(n.Fixed)
	slices.Sort(n.Unanswered)
}

// worstStates returns the worst state of each rule that was checked.
func worstStates(r *finding.Report) map[string]finding.State {
	states := map[string]finding.State{}
	for _, id := range r.Passed {
		states[id] = finding.Pass
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if have, ok := states[f.ID]; !ok || f.State.Compare(have) < 0 {
			states[f.ID] = f.State
		}
	}
	return states
}

func reportTime(r *finding.Report) time.Time {
	t, _ := time.Parse(time.RFC3339, r.Subject.Time) // checked when it was read
	return t
}

// openRules returns each rule that fails or has no answer once, by the worst of its findings, the worst rule first.
func openRules(r *finding.Report) []openRule {
	open, at := []openRule{}, map[string]int{}
	for _, f := range slices.SortedStableFunc(slices.Values(r.Findings), func(a, b finding.Finding) int { return a.Compare(&b) }) {
		if f.State != finding.Fail && f.State != finding.Unknown && f.State != finding.Error {
			continue
		}
		i, ok := at[f.ID]
		if !ok {
			i, at[f.ID] = len(open), len(open)
			open = append(open, openRule{ID: f.ID, Title: f.Title, State: f.State, Severity: f.Severity})
		}
		open[i].Findings++
	}
	return open
}

func newTally(open []openRule) tally {
	c := tally{Failed: map[rule.Severity]int{}}
	for _, o := range open {
		if o.State != finding.Fail {
			c.NoAnswer++
			continue
		}
		c.Fails++
		c.Failed[o.Severity]++
	}
	return c
}

// failsOnly returns the rules that fail in one list and not in the other.
func failsOnly(in, not []openRule) []string {
	list := []string{}
	for _, o := range in {
		fails := func(p openRule) bool { return p.ID == o.ID && p.State == finding.Fail }
		if o.State == finding.Fail && !slices.ContainsFunc(not, fails) {
			list = append(list, o.ID)
		}
	}
	slices.Sort(list)
	return list
}

func ruleGroup(id string) string { return (&rule.Rule{ID: id}).Group() }

// fill sums the open rules up by group.
func (n *fleetNode) fill(groups []string) {
	n.Cells = make([]fleetCell, len(groups))
	for _, o := range n.Open {
		// groups is sorted, and has the group of each open rule.
		i, _ := slices.BinarySearch(groups, ruleGroup(o.ID))
		c := &n.Cells[i]
		if o.State != finding.Fail {
			c.NoAnswer++
			continue
		}
		c.Fails++
		if c.Worst == "" {
			c.Worst = o.Severity // the worst comes first
		}
		if o.Severity == c.Worst {
			c.OfWorst++
		}
	}
}

// compare orders nodes, the worst first.
func (n *fleetNode) compare(m *fleetNode) int {
	for _, s := range finding.Severities() {
		if c := m.Now.Failed[s] - n.Now.Failed[s]; c != 0 {
			return c
		}
	}
	return cmp.Or(m.Now.NoAnswer-n.Now.NoAnswer, cmp.Compare(n.Name, m.Name))
}

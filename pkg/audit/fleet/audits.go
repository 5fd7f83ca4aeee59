package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// NodeAudit is the known state of one node's audit. Its JSON form is stable: names are added,
// never changed.
type NodeAudit struct {
	Node    string `json:"node"`
	Devices int    `json:"devices"`
	// Tainted counts the devices that get no new claim because a check fails.
	Tainted int `json:"tainted"`
	// Reported is the time of the node's own report; nil if there is none. A report that is
	// older than a day, or from the future, is a failure of its own. Its findings still count.
	Reported *time.Time `json:"reported,omitempty"`
	// Verdict is the verdict of the report.
	Verdict finding.State `json:"verdict,omitempty"`
	Failed  []FailedCheck `json:"failed"`
}

// FailedCheck is a check that fails on a node.
type FailedCheck struct {
	ID       string        `json:"id"`
	Severity rule.Severity `json:"severity,omitempty"`
	// Title and Fix are the check's expectation and its fix, in one line. They are empty for a
	// check that this version does not know.
	Title string `json:"title,omitempty"`
	Fix   string `json:"fix,omitempty"`
	// Devices are the affected devices, and Claims are the claims that have them now.
	Devices []string `json:"devices"`
	Claims  []string `json:"claims"`
	// Taints is set if an affected device gets no new claim because of failed checks, this one among them.
	Taints bool `json:"taints,omitempty"`
	// By names its sources: the plugin, by the devices' attributes, or a report.
	By []string `json:"by"`
	// Texts are the texts of the report's findings.
	Texts []string `json:"texts,omitempty"`
}

// Sources of a failure.
const (
	byPlugin = "plugin"
	byReport = "report"
)

// Audit rolls up the nodes' own results, the worst first: by their devices' attributes, and by
// their reports, of which the latest of a node counts. The rules are the catalogue.
func (s *State) Audit(reports []*finding.Report, rules []rule.Rule) []NodeAudit {
	byNode := map[string]*nodeRollup{}
	known := map[string]*rule.Rule{}
	for i := range rules {
		known[rules[i].ID] = &rules[i]
	}
	devices := s.Devices()
	node := func(name string) *nodeRollup {
		if byNode[name] == nil {
			byNode[name] = newNodeRollup(name)
		}
		return byNode[name]
	}
	// A node that publishes devices has a row even if none of its checks fails, or if it was never audited.
	for _, name := range s.Nodes() {
		node(name)
	}
	onNode := map[string][]*Device{}
	for i := range devices {
		d := &devices[i]
		onNode[d.Node] = append(onNode[d.Node], d)
		node(d.Node).published(d, known)
	}
	reports, refused := CredibleReports(reports, s.Now)
	for _, r := range refused {
		node(r.Report.Subject.Name).untimely(r.Why)
	}
	for _, r := range LatestReports(reports, s.publishes()) {
		node(r.Node).reported(&r, onNode[r.Node], known)
		if text := r.Untimely(s.Now); text != "" {
			node(r.Node).untimely(text)
		}
	}
	all := []NodeAudit{}
	for _, n := range byNode {
		slices.SortFunc(n.Failed, compareFailed)
		all = append(all, n.NodeAudit)
	}
	slices.SortFunc(all, func(a, b NodeAudit) int { return cmp.Or(compareWorst(&a, &b), cmp.Compare(a.Node, b.Node)) })
	return all
}

// publishes returns a function that reports whether a node publishes something, by its name.
func (s *State) publishes() func(node string) bool {
	nodes := map[string]bool{}
	for _, n := range s.Nodes() {
		nodes[n] = true
	}
	return func(node string) bool { return nodes[node] }
}

func compareFailed(a, b FailedCheck) int {
	return cmp.Or(a.Severity.Compare(b.Severity), cmp.Compare(len(b.Claims), len(a.Claims)), cmp.Compare(a.ID, b.ID))
}

// compareWorst orders nodes by their worst failure.
func compareWorst(a, b *NodeAudit) int {
	if len(a.Failed) == 0 || len(b.Failed) == 0 {
		return len(b.Failed) - len(a.Failed)
	}
	return cmp.Or(a.Failed[0].Severity.Compare(b.Failed[0].Severity), len(b.Failed)-len(a.Failed))
}

// Expected returns the ensured state as a clause.
func (f *FailedCheck) Expected() string {
	r := rule.Rule{Title: f.Title}
	return r.Expected()
}

package fleet

import (
	"cmp"
	"slices"
	"strings"
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
	byNode := map[string]*NodeAudit{}
	known := map[string]*rule.Rule{}
	for i := range rules {
		known[rules[i].ID] = &rules[i]
	}
	devices := s.Devices()
	node := func(name string) *NodeAudit {
		if byNode[name] == nil {
			byNode[name] = &NodeAudit{Node: name, Failed: []FailedCheck{}}
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
		all = append(all, *n)
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

// published adds the failures in a device's attributes.
func (n *NodeAudit) published(d *Device, known map[string]*rule.Rule) {
	n.Devices++
	tainted := slices.IndexFunc(d.Taints, func(t string) bool { return t == "audit" || strings.HasPrefix(t, "audit=") })
	worst := ""
	if tainted >= 0 {
		n.Tainted++
		// The taint's value is the worst check. The attribute that lists all of them has a limited length (64 bytes in
		// resource.k8s.io), and may lack it.
		_, worst, _ = strings.Cut(d.Taints[tainted], "=")
	}
	ids := d.Failed
	if worst != "" && !slices.Contains(ids, worst) {
		ids = append(slices.Clone(ids), worst)
	}
	for _, id := range ids {
		f := n.failed(id, "", known, byPlugin)
		f.Taints = f.Taints || tainted >= 0
		f.concerns(d)
	}
}

// reported adds the failures in the node's own report. The published devices show which
// functions belong to which claims.
func (n *NodeAudit) reported(r *NodeReport, devices []*Device, known map[string]*rule.Rule) {
	n.Reported, n.Verdict = new(r.At), r.Report.Summary.Verdict
	for i := range r.Report.Findings {
		found := &r.Report.Findings[i]
		if found.State != finding.Fail {
			continue
		}
		f := n.failed(found.ID, found.Severity, known, byReport)
		// A check has a finding for each object that fails, so one entry can have several texts.
		f.Texts = append(f.Texts, found.Text)
		for _, a := range found.Devices {
			for _, d := range devices {
				// A device that pairs a GPU with a NIC's VF has two addresses.
				if d.Address == a.String() || d.VF == a.String() {
					f.concerns(d)
				}
			}
		}
	}
}

// passReport is the fix for a node whose report does not describe the present, or does not count.
const passReport = "run `kata-vfio-audit node -o json` on the node, and pass the report"

// auditedLately is the check of package cluster that asks for reports of a day.
const auditedLately = "K8S-024"

// Expected returns the ensured state as a clause.
func (f *FailedCheck) Expected() string {
	r := rule.Rule{Title: f.Title}
	return r.Expected()
}

// untimely adds a failure for a node's report that does not describe the present, because checks that pass in it may fail now.
func (n *NodeAudit) untimely(text string) {
	f := n.failed(auditedLately, rule.Medium, nil, byReport)
	f.Title = "Ensure that each node with devices was audited within a day"
	f.Fix = passReport
	f.Texts = append(f.Texts, "node "+n.Node+" "+text)
}

// failed returns the entry of a check, and creates it if it is missing. The severity in a report is more precise than the severity
// of the rule. Of several severities, the worst is kept.
func (n *NodeAudit) failed(id string, severity rule.Severity, known map[string]*rule.Rule, by string) *FailedCheck {
	i := slices.IndexFunc(n.Failed, func(f FailedCheck) bool { return f.ID == id })
	if i < 0 {
		f := FailedCheck{ID: id, Devices: []string{}, Claims: []string{}, By: []string{}}
		if r := known[id]; r != nil {
			f.Severity, f.Title, f.Fix = r.Severity, r.Title, r.Fix
		}
		n.Failed = append(n.Failed, f)
		i = len(n.Failed) - 1
	}
	f := &n.Failed[i]
	if severity != "" && (!slices.Contains(f.By, byReport) || severity.Compare(f.Severity) < 0) {
		f.Severity = severity
	}
	if !slices.Contains(f.By, by) {
		f.By = append(f.By, by)
	}
	return f
}

func (f *FailedCheck) concerns(d *Device) {
	if !slices.Contains(f.Devices, d.Name) {
		f.Devices = append(f.Devices, d.Name)
	}
	if d.Claim != "" && !slices.Contains(f.Claims, d.Claim) {
		f.Claims = append(f.Claims, d.Claim)
	}
}

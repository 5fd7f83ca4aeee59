package fleet

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// nodeRollup makes the audit of one node. Reports are untrusted and large, so entries and names are found by maps.
type nodeRollup struct {
	NodeAudit
	// entries are the indexes of the checks in Failed.
	entries map[string]int
	named   map[entryName]bool
}

// entryName is a name that the entry of a check has: that of a device or of a claim.
type entryName struct{ check, kind, name string }

func newNodeRollup(node string) *nodeRollup {
	return &nodeRollup{NodeAudit: NodeAudit{Node: node, Failed: []FailedCheck{}}, entries: map[string]int{}, named: map[entryName]bool{}}
}

// published adds the failures in a device's attributes.
func (n *nodeRollup) published(d *Device, known map[string]*rule.Rule) {
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
		n.concerns(f, d)
	}
}

// byAddress returns the devices at each address. A device that pairs a GPU with a NIC's VF has two addresses.
func byAddress(devices []*Device) map[string][]*Device {
	at := map[string][]*Device{}
	for _, d := range devices {
		at[d.Address] = append(at[d.Address], d)
		if d.VF != d.Address {
			at[d.VF] = append(at[d.VF], d)
		}
	}
	return at
}

// reported adds the failures in the node's own report. The published devices show which
// functions belong to which claims.
func (n *nodeRollup) reported(r *NodeReport, devices []*Device, known map[string]*rule.Rule) {
	n.Reported, n.Verdict = new(r.At), r.Report.Summary.Verdict
	at := byAddress(devices)
	for i := range r.Report.Findings {
		found := &r.Report.Findings[i]
		if found.State != finding.Fail {
			continue
		}
		f := n.failed(found.ID, found.Severity, known, byReport)
		// A check has a finding for each object that fails, so one entry can have several texts.
		f.Texts = append(f.Texts, found.Text)
		for _, a := range found.Devices {
			for _, d := range at[a.String()] {
				n.concerns(f, d)
			}
		}
	}
}

// passReport is the fix for a node whose report does not describe the present, or does not count.
const passReport = "run `kata-vfio-audit node -o json` on the node, and pass the report"

// auditedLately is the check of package cluster that asks for reports of a day.
const auditedLately = "K8S-024"

// untimely adds a failure for a node's report that does not describe the present, because checks that pass in it may fail now.
func (n *nodeRollup) untimely(text string) {
	f := n.failed(auditedLately, rule.Medium, nil, byReport)
	f.Title = "Ensure that each node with devices was audited within a day"
	f.Fix = passReport
	f.Texts = append(f.Texts, "node "+n.Node+" "+text)
}

// failed returns the entry of a check, and creates it if it is missing. The severity in a report is more precise than the severity
// of the rule. Of several severities, the worst is kept.
func (n *nodeRollup) failed(id string, severity rule.Severity, known map[string]*rule.Rule, by string) *FailedCheck {
	i, ok := n.entries[id]
	if !ok {
		f := FailedCheck{ID: id, Devices: []string{}, Claims: []string{}, By: []string{}}
		if r := known[id]; r != nil {
			f.Severity, f.Title, f.Fix = r.Severity, r.Title, r.Fix
		}
		i, n.entries[id] = len(n.Failed), len(n.Failed)
		n.Failed = append(n.Failed, f)
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

// concerns adds a device, and the claim that has it, to a check's entry. Each is added once.
func (n *nodeRollup) concerns(f *FailedCheck, d *Device) {
	if n.isNew(entryName{f.ID, "device", d.Name}) {
		f.Devices = append(f.Devices, d.Name)
	}
	if d.Claim != "" && n.isNew(entryName{f.ID, "claim", d.Claim}) {
		f.Claims = append(f.Claims, d.Claim)
	}
}

// isNew reports whether an entry does not have the name yet, and notes that it has.
func (n *nodeRollup) isNew(name entryName) bool {
	had := n.named[name]
	n.named[name] = true
	return !had
}

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/nodereport"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// clockSkew is by how much the clocks of nodes and API server may differ.
const clockSkew = nodereport.ClockSkew

func nodeChecks() []Check {
	const look = "kata-vfio-audit node -o json, on the node"
	return []Check{
		{
			Rule: finding.Rule{
				ID: "K8S-024", Title: "Ensure that each node with devices was audited within a day", Severity: medium,
				Why:    "The API server does not know a node's IOMMU, ports and holders.",
				Fix:    "run `kata-vfio-audit node -o json` on the node, or enable the chart's audit.nodes, and pass the report with --node-report",
				Verify: look,
			}, needs: []string{"resourceslices", "nodes"}, judge: auditedLately,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-025", Title: "Ensure that each node's own audit passes", Severity: high,
				Why:    "A failed boundary affects all pods of the node.",
				Fix:    "see the findings of the node's checks in this report",
				Verify: look,
			}, judge: auditsPass,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-026", Title: "Ensure that nodes and the API server agree about device owners", Severity: high,
				Why:    "If they disagree, a device can have two owners.",
				Fix:    "look at `kata-vfio-plugin status` on the node and at the claim's events; delete the pod of the claim that differs",
				Verify: "kubectl get resourceclaims -A -o custom-columns=NS:.metadata.namespace,CLAIM:.metadata.name,UID:.metadata.uid,DEVICES:.status.devices[*].data.address",
			}, needs: []string{"resourceclaims"}, judge: recordsAgree,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-027", Title: "Ensure that nodes' ledgers match their checkpoints in the API server", Severity: critical,
				Why:    "A shorter or different ledger, or another key, means that history was rewritten.",
				Fix:    "preserve the ledger's directory for the investigation, and treat the node as compromised until you know the cause",
				Verify: "kubectl get resourceclaims,events -A -o json | kata-vfio-audit ledger verify --anchor -",
			}, needs: []string{"resourceclaims"}, judge: ledgersGoOn,
		},
	}
}

// nodeReport is the latest report of one node, and those before it.
type nodeReport struct{ nodereport.NodeReport }

// reports returns the latest report of each node, by its name.
func (s *State) reports() []nodeReport {
	var all []nodeReport
	for _, r := range nodereport.Latest(s.Reports, func(name string) bool { return s.Nodes[name] }) {
		all = append(all, nodeReport{r})
	}
	return all
}

func noReports() []finding.Finding {
	return notApplicable("no node's report was given (--node-report)")
}

func onNode(node, text string, seen ...finding.Evidence) finding.Finding {
	return fail("node "+node, "node "+node+" "+text, seen...)
}

func auditedLately(s *State) []finding.Finding {
	if len(s.Reports) == 0 {
		return noReports()
	}
	missing := map[string]bool{}
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Driver == v1alpha1.DriverName && d.Node != "" {
			missing[d.Node] = true
		}
	}
	var found []finding.Finding
	reports := s.reports()
	for i := range reports {
		r := &reports[i]
		delete(missing, r.Node)
		if !s.Nodes[r.Node] {
			found = append(found, onNode(r.Node, "has a report and is none of the cluster's"))
		} else if text := r.Untimely(s.Now); text != "" {
			found = append(found, onNode(r.Node, text, saw("report of "+r.Node, r.Subject.Time)))
		}
	}
	for _, node := range slices.Sorted(maps.Keys(missing)) {
		found = append(found, onNode(node, "publishes devices, and there is no report of its own audit"))
	}
	return orPass(found, count(len(reports), "node"))
}

// auditsPass sums each node up: its verdict, and what it counts.
func auditsPass(s *State) []finding.Finding {
	if len(s.Reports) == 0 {
		return noReports()
	}
	var found []finding.Finding
	reports := s.reports()
	for i := range reports {
		r := &reports[i]
		silent := r.Summary.States[finding.Unknown] + r.Summary.States[finding.Error]
		text := fmt.Sprintf("%s; %d unknown, %d waived", failedWords(r.Report), silent, r.Summary.States[finding.Waived])
		f := onNode(r.Node, text, saw("report of "+r.Node, string(r.Summary.Verdict)))
		switch r.Summary.Verdict {
		case finding.Fail:
			f.Severity = worst(r.Report)
		case finding.Unknown:
			f.State = finding.Unknown
		default:
			continue
		}
		found = append(found, f)
	}
	return orPass(found, count(len(reports), "node"))
}

// failedWords counts what fails by severity: "has 2 failures: 1 critical, 1 low".
func failedWords(r *finding.Report) string {
	var parts []string
	for _, severity := range finding.Severities() {
		if n := r.Summary.Failed[severity]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, severity))
		}
	}
	if len(parts) == 0 {
		return "has no failures"
	}
	return fmt.Sprintf("has %s: %s", count(r.Summary.States[finding.Fail], "failure"), strings.Join(parts, ", "))
}

// worst is the severity of the gravest failure.
func worst(r *finding.Report) isolation.Severity {
	for _, severity := range finding.Severities() {
		if r.Summary.Failed[severity] > 0 {
			return severity
		}
	}
	return isolation.Info
}

// Package check judges a node by rules, each with a stable ID, on the facts of package facts. It reads no files itself and keeps no
// state, so a live node, a copy of it and the plugin's own snapshot get the same answers.
package check

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Check is how a node is judged by a rule.
type Check = finding.Check[*facts.Node, Answer]

// Catalogue returns all checks that a node can answer, by group and topic. It parses the texts of the rules, which takes
// milliseconds: call it once, and pass the checks on. The error is a defect of the build.
func Catalogue() ([]Check, error) {
	all, err := rule.ReadCatalogue()
	if err != nil {
		return nil, err
	}
	return Of(all)
}

// Of is [Catalogue] for rules that were read already.
func Of(all *rule.Catalogue) ([]Check, error) {
	return finding.Join(all.OfNodes(), slices.Concat(iommuChecks(), acsChecks(), vfioChecks(), claimableChecks(), resetChecks(), gpuChecks(),
		nicChecks(), hostChecks(), runtimeChecks(), cdiChecks(), confidentialChecks(), observationChecks(), ownChecks(all.Own)))
}

// Options say how [Run] judges.
type Options = finding.Options

// Run runs all checks and returns the finished report. The caller sets the subject.
func Run(n *facts.Node, checks []Check, o Options) *finding.Report {
	o.Together = true // some wait for files, most compute
	r := finding.Run(n, surroundings{n}, checks, o)
	r.Basis, r.Exposures = new(n.Basis()), finding.ExposureWords()
	r.Summary.Devices = len(n.Snapshot.Functions)
	r.Summary.Claims = claimsAffected(n, r.Findings)
	if slices.ContainsFunc(checks, func(c Check) bool { return c.ID == finding.LedgerSound }) {
		r.NodeRecords = nodeRecords(n)
	}
	if slices.ContainsFunc(checks, func(c Check) bool { return c.ID == kataSandboxes }) {
		r.Kata = DescribeKata(n)
	}
	r.Finish()
	return r
}

// surroundings implements [finding.Surroundings] for a node.
type surroundings struct{ node *facts.Node }

// Lacks is empty: each check of a node reports unreadable files itself.
func (surroundings) Lacks([]string) string { return "" }

// Expose names the tenants that have the finding's functions.
func (s surroundings) Expose(f *finding.Finding) {
	f.Tenants = s.node.Tenants(f.Devices...)
	if owners := s.node.Owners(f.Devices...); len(owners) > len(f.Tenants) {
		f.Tenants = owners // the tenants are one namespace that was deleted and created again
	}
	f.Exposure = exposure(s.node, f)
}

// exposure returns the exposure of a finding. A finding without functions affects the whole node, and so every tenant of its
// functions. Only a finding with functions can affect the isolation of two tenants from each other.
func exposure(n *facts.Node, f *finding.Finding) finding.Exposure {
	devices := f.Devices
	if len(devices) == 0 {
		for _, fn := range n.Functions() {
			devices = append(devices, fn.Address)
		}
	}
	switch tenants := n.Owners(devices...); {
	case len(tenants) > 1 && len(f.Devices) > 0:
		return finding.CrossTenant
	case len(tenants) > 0:
		return finding.Allocated
	}
	switch {
	case slices.ContainsFunc(devices, n.IsPublished):
		return finding.Published
	case slices.ContainsFunc(devices, n.IsAvailable):
		return finding.WouldBePublished
	}
	return finding.Unexposed
}

// claimsAffected counts the claims that hold a function of a failure.
func claimsAffected(n *facts.Node, findings Answer) int {
	claims := map[string]bool{}
	for i := range findings {
		if findings[i].State != finding.Fail {
			continue
		}
		for _, a := range findings[i].Devices {
			for _, t := range n.TenanciesAt(a) {
				claims[t.Record.ID()] = true
			}
		}
	}
	return len(claims)
}

// nodeRecords returns the node's own records of the owners of its functions.
func nodeRecords(n *facts.Node) *finding.NodeRecords {
	b := &finding.NodeRecords{Claims: []finding.ClaimRecord{}}
	for _, rec := range n.Records() {
		if !n.IsThisBoot(rec) {
			continue
		}
		ref := rec.Plan.Claim
		b.Claims = append(b.Claims, finding.ClaimRecord{
			UID: ref.UID, Namespace: ref.Namespace, Name: ref.Name, State: string(rec.State), Since: rec.Since, Devices: rec.Plan.Addresses(),
		})
	}
	switch r, f := n.Ledger(); {
	case r != nil:
		b.Ledger = &finding.LedgerRecord{Events: r.Size, Checkpoint: ledger.OneLine(r.Signed), Key: r.Key}
	case !f.Known():
		b.LedgerUnread = f.Err
	}
	return b
}

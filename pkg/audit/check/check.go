// Package check judges a node by rules: each a question with a stable id, asked
// of the facts of package facts. It reads nothing itself and keeps no state, so
// that a live node, a copy and the plugin's own snapshot get the same answers.
package check

import (
	"cmp"
	"slices"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Check is a rule and how a node is judged by it.
type Check struct {
	finding.Rule
	// Judge returns one finding for each object that fails or is unknown, and one [pass] for all others, or
	// [notApplicable]. It may leave out what the rule says already. A Severity that is set replaces the rule's for that
	// case. An empty list is a bug, and reported as one.
	Judge func(*facts.Node) Answer
	// Review takes the place of Judge in a check of the audit itself: it is asked last,
	// of what all others have said.
	Review func(Answer) Answer
}

// Catalogue returns all checks that a node can answer, by group and number.
func Catalogue() []Check {
	return slices.Concat(iommuChecks(), acsChecks(), vfioChecks(), claimableChecks(), resetChecks(), gpuChecks(), nicChecks(),
		hostChecks(), runtimeChecks(), cdiChecks(), confidentialChecks(), observationChecks())
}

// RulesOf returns the rules of checks.
func RulesOf(checks []Check) []finding.Rule {
	rules := make([]finding.Rule, len(checks))
	for i := range checks {
		rules[i] = checks[i].Rule
	}
	return rules
}

// Options say how [Run] judges.
type Options struct {
	Profile finding.Profile
	Waivers []finding.Waiver
	// Today is the day that waivers are held against, "2026-11-22".
	Today string
}

// Run runs all checks and returns the finished report. The caller sets the subject.
func Run(n *facts.Node, checks []Check, o Options) *finding.Report {
	r := &finding.Report{Profile: o.Profile.Name, Findings: askAll(n, checks, &o.Profile)}
	said := slices.Clone(r.Findings)
	for _, c := range checks {
		if c.Review != nil {
			c.Judge = func(*facts.Node) Answer { return c.Review(said) }
			r.Findings = append(r.Findings, ask(n, &c, &o.Profile)...)
		}
	}
	finding.Apply(o.Waivers, o.Today, r.Findings)
	r.UnusedWaivers = finding.Unused(o.Waivers, r.Findings)
	r.Basis, r.Exposures = new(n.Basis()), finding.ExposureWords()
	r.Summary.Devices = len(n.Snapshot.Functions)
	r.Summary.Claims = claimsAffected(n, r.Findings)
	if slices.ContainsFunc(checks, func(c Check) bool { return c.ID == LedgerSound }) {
		r.NodeRecords = nodeRecords(n)
	}
	if slices.ContainsFunc(checks, func(c Check) bool { return c.ID == kataSandboxes }) {
		r.Kata = KataOf(n)
	}
	r.Finish()
	return r
}

// askAll returns what the checks found, in their order, but for reviews. They are
// asked side by side: some read files, most think.
func askAll(n *facts.Node, checks []Check, profile *finding.Profile) Answer {
	found := make([]Answer, len(checks))
	var asking sync.WaitGroup
	for i := range checks {
		if checks[i].Review == nil {
			asking.Go(func() { found[i] = ask(n, &checks[i], profile) })
		}
	}
	asking.Wait()
	return slices.Concat(found...)
}

// ask returns a check's findings, complete.
func ask(n *facts.Node, c *Check, profile *finding.Profile) Answer {
	severity := profile.Severity(&c.Rule)
	_, named := profile.Severities[c.ID]
	if severity == finding.Off {
		off := notApplicable("profile " + profile.Name + " disables this check")
		return Answer{complete(n, c, off[0])}
	}
	found := c.Judge(n)
	if len(found) == 0 {
		found = Answer{{State: finding.Error, Text: "the check returned no finding"}}
	}
	for i := range found {
		own := found[i].Severity
		found[i] = complete(n, c, found[i])
		found[i].Severity = severity
		if own != "" && !named {
			found[i].Severity = own
		}
	}
	return found
}

// complete fills in what the rule says, and who is exposed.
func complete(n *facts.Node, c *Check, f finding.Finding) finding.Finding {
	f.ID, f.Title, f.Severity = c.ID, c.Title, c.Severity
	if f.State != finding.Pass && f.State != finding.NotApplicable {
		f.Remediation = cmp.Or(f.Remediation, c.Fix)
	}
	f.Verify = cmp.Or(f.Verify, c.Verify)
	if f.Device != nil && !slices.Contains(f.Devices, *f.Device) {
		f.Devices = append([]pci.Address{*f.Device}, f.Devices...)
	}
	if f.State == finding.Pass || f.State == finding.NotApplicable {
		f.Exposure = finding.Unexposed
		return f
	}
	f.Tenants = n.TenantsOf(f.Devices...)
	f.Exposure = exposure(n, &f)
	return f
}

// exposure returns who is in reach of a finding. A finding without functions concerns the whole node, and so every
// tenant of its functions. Only a finding with functions can concern two tenants' isolation from each other.
func exposure(n *facts.Node, f *finding.Finding) finding.Exposure {
	devices := f.Devices
	if len(devices) == 0 {
		for _, fn := range n.Functions() {
			devices = append(devices, fn.Address)
		}
	}
	switch tenants := n.TenantsOf(devices...); {
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

// claimsAffected counts the claims that have a function which a failure is about.
func claimsAffected(n *facts.Node, findings Answer) int {
	claims := map[string]bool{}
	for i := range findings {
		if findings[i].State != finding.Fail {
			continue
		}
		for _, a := range findings[i].Devices {
			for _, t := range n.TenanciesOf(a) {
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
	if r, _ := n.Ledger(); r != nil {
		b.Ledger = &finding.LedgerRecord{Events: r.Size, Checkpoint: ledger.OneLine(r.Signed), Key: r.Key}
	}
	return b
}

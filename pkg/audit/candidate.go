package audit

import (
	"context"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// CandidateVerdict says whether a node is fit for kata-vfio.
type CandidateVerdict string

// Verdicts.
const (
	Fit            CandidateVerdict = "fit"
	AfterBootstrap CandidateVerdict = "fit after bootstrap"
	AfterReboot    CandidateVerdict = "fit after bootstrap and a reboot"
	Unfit          CandidateVerdict = "unfit"
)

// Candidate is the result of [JudgeCandidate] for one node.
type Candidate struct {
	Subject finding.Subject `json:"subject"`
	Profile string          `json:"profile"`
	Basis   *finding.Basis  `json:"basis,omitempty"`
	// RuleFiles are the files of the organization's own rules, if these were checked too.
	RuleFiles []rule.File `json:"ruleFiles,omitempty"`
	// Blueprint is the source of the blueprint.
	Blueprint string           `json:"blueprint"`
	Verdict   CandidateVerdict `json:"verdict"`
	// FailOn is the least severity that makes a node unfit.
	FailOn rule.Severity `json:"failOn"`
	// Refusals are problems that prevent all changes until you solve them. ByHand are problems that bootstrap leaves to you.
	Refusals []state.Problem   `json:"refusals"`
	ByHand   []state.Problem   `json:"byHand"`
	Changes  []CandidateChange `json:"changes"`
	// Commands run after the changes.
	Commands []string `json:"commands"`
	Reboot   bool     `json:"reboot"`
	// Repaired are the checks that fail now and pass after the changes.
	Repaired []CandidateRule `json:"repaired"`
	// Remaining are the failures after the changes, each with its fix.
	Remaining []finding.Finding `json:"remaining"`
	// Open are the checks whose answer is unknown before the reboot.
	Open []CandidateRule `json:"open"`
	// Unknown are the checks without an answer, now and after the changes.
	Unknown []finding.Finding `json:"unknown"`
}

// CandidateRule is a check.
type CandidateRule struct {
	ID       string        `json:"id"`
	Title    string        `json:"title"`
	Severity rule.Severity `json:"severity"`
	// Now is the answer for the node as it is.
	Now finding.State `json:"now"`
}

// CandidateChange is the set of changes that one part of bootstrap makes.
type CandidateChange struct {
	Part string `json:"part"`
	// Files are the changed files, also of /proc and /sys, except for the kernel's command line.
	Files []string `json:"files"`
	// Arguments are added to the kernel's command line.
	Arguments []string `json:"arguments,omitempty"`
	// Repairs are the checks that fail without this change, by ID.
	Repairs []string `json:"repairs"`
}

// CandidateNode is the node as it is, and the plan for it.
type CandidateNode struct {
	FS       *sysfs.FS
	Snapshot *device.Snapshot
	// Report is the present result of the audit.
	Report *finding.Report
	Plan   *bootstrap.Plan
	// Checks are the checks of the report.
	Checks []check.Check
	// Blueprint is the source of the plan's blueprint.
	Blueprint string
	// Ask asks a running containerd; nil if there is none. It is not used if the changes restart containerd, because containerd then
	// runs with the configuration in its files.
	Ask runtimes.Ask
}

// JudgeCandidate returns the verdict on a node that bootstrap has not configured, or not completely: the changes that
// bootstrap would make, the checks that would then pass, and the failures that remain. A failure of the severity failOn or
// worse makes it unfit.
//
// It runs the checks a second time, on the files as bootstrap would leave them. Facts that the kernel shows only after a reboot are
// not in files: see [scenarios]. A check whose answer depends on them is listed in Open.
func JudgeCandidate(ctx context.Context, n *CandidateNode, o check.Options, failOn rule.Severity) *Candidate {
	j := &judge{ctx: ctx, node: n, options: o, outlook: withSockets(n.FS, n.Plan.Outlook()), before: worst(n.Report)}
	plain, after := j.audit()
	c := &Candidate{
		Subject: n.Report.Subject, Profile: n.Report.Profile, Basis: n.Report.Basis, RuleFiles: n.Report.RuleFiles, Blueprint: n.Blueprint, FailOn: failOn,
		Refusals: n.Plan.Refused(), ByHand: byHand(n.Plan), Reboot: j.outlook.Reboot, Commands: commands(n.Plan),
	}
	j.compare(c, plain, after)
	c.Changes = j.changes(c.Repaired)
	c.Verdict = c.verdict()
	c.fillLists()
	return c
}

// verdict returns the verdict according to the lists.
func (c *Candidate) verdict() CandidateVerdict {
	if len(c.Refusals) > 0 || len(c.Failing()) > 0 {
		return Unfit
	}
	return c.outcome()
}

// outcome returns the verdict on a node without refusals and without failures that make it unfit.
func (c *Candidate) outcome() CandidateVerdict {
	switch {
	case c.Reboot:
		return AfterReboot
	case len(c.Changes) > 0:
		return AfterBootstrap
	}
	return Fit
}

// Failing returns the remaining failures that make the node unfit.
func (c *Candidate) Failing() []finding.Finding {
	return slices.DeleteFunc(slices.Clone(c.Remaining), func(f finding.Finding) bool { return !f.FailsAt(c.FailOn) })
}

// Undetermined reports whether a check has no answer, even if a reboot will give one.
func (c *Candidate) Undetermined() bool { return len(c.Open)+len(c.Unknown) > 0 }

func byHand(p *bootstrap.Plan) []state.Problem {
	return slices.DeleteFunc(slices.Clone(p.Problems), func(problem state.Problem) bool { return problem.Fatal })
}

func commands(p *bootstrap.Plan) []string {
	var all []string
	for _, s := range p.Steps {
		if s.Due {
			all = append(all, s.Commands...)
		}
	}
	return all
}

// judge audits one node several times.
type judge struct {
	ctx     context.Context
	node    *CandidateNode
	options check.Options
	outlook *bootstrap.Outlook
	// before has the worst finding of each check on the present node.
	before map[string]finding.Finding
}

// audit runs all checks on the node as the changes would leave it, once for each scenario. plain is the report on the certain facts
// only, without the assumptions of scenarios.
func (j *judge) audit() (plain *finding.Report, each []*finding.Report) {
	over := func(s scenario) *finding.Report {
		return j.run(j.node.FS.WithOverlay(s.files), s.snapshot, j.node.Checks)
	}
	for _, s := range scenarios(j.outlook, j.node.Snapshot, nil) {
		each = append(each, over(s))
	}
	// Without an assumption, the only scenario is the plain one.
	if len(each) == 1 {
		return each[0], each
	}
	return over(scenario{j.node.Snapshot, overlay(j.outlook, nil)}), each
}

// run runs checks on one node.
func (j *judge) run(fs *sysfs.FS, s *device.Snapshot, checks []check.Check) *finding.Report {
	n := facts.New(fs, s)
	n.ReadLinks(j.ctx)
	if j.node.Ask != nil && !j.restarts() {
		runtimes.AskRunning(j.ctx, n, j.node.Ask)
	}
	return check.Run(n, checks, j.options)
}

// restarts reports whether containerd restarts after the changes.
func (j *judge) restarts() bool {
	return j.outlook.Reboot || slices.ContainsFunc(j.node.Plan.Steps, func(s bootstrap.Step) bool {
		return s.FollowUp == state.ContainerdRestart && s.Due && len(s.Commands) > 0
	})
}

// worst returns the worst finding of each check. The findings of a report are sorted, the worst first.
func worst(r *finding.Report) map[string]finding.Finding {
	all := map[string]finding.Finding{}
	for _, f := range r.Findings {
		if _, ok := all[f.ID]; !ok {
			all[f.ID] = f
		}
	}
	return all
}

func (c *Candidate) fillLists() {
	c.Refusals, c.ByHand, c.Changes, c.Commands = list(c.Refusals), list(c.ByHand), list(c.Changes), list(c.Commands)
	c.Repaired, c.Remaining, c.Open, c.Unknown = list(c.Repaired), list(c.Remaining), list(c.Open), list(c.Unknown)
}

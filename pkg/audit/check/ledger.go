package check

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// LedgerSound is the rule whose failure means that the node's history can't be
// trusted: the audit's exit code tells it from all others.
const LedgerSound = "OBS-001"

// ledgerChecks returns the checks of the node's history as such.
func ledgerChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: LedgerSound, Title: "The node's ledger is what was written", Severity: isolation.Critical,
			Why:     "who had which device is proven by the ledger alone: where it was changed, cut off or removed, nothing is",
			Fix:     "keep the directory as it is for whoever looks into that; move it away and restart the plugin, and a new ledger begins",
			Verify:  "kata-vfio-audit ledger verify",
			Sources: []string{"RFC 6962 section 2.1", "C2SP tlog-checkpoint"},
		}, Judge: ledgerVerifies},
		{Rule: finding.Rule{
			ID: "OBS-002", Title: "The ledger's checkpoints are kept off the node", Severity: isolation.High, Static: true,
			Why:    "who is root on the node has its key, and can write all anew that no checkpoint elsewhere vouches for",
			Fix:    "store what `kubectl get resourceclaims,events -A -o json` and `kata-vfio-audit node -o json` say where the nodes can't reach it",
			Verify: "kubectl get resourceclaims,events -A -o json | kata-vfio-audit ledger verify --anchor -",
		}, Judge: anchored},
	}
}

// maxProblems is how many of a ledger's problems are told one by one: the first
// ones say where it began.
const maxProblems = 16

func ledgerVerifies(n *facts.Node) []finding.Finding {
	r, dir := n.Ledger()
	journal := n.Journal()
	switch {
	case r == nil && dir.Known() && journal.Status == facts.Absent:
		return notApplicable("the plugin has not worked here", dir, journal)
	case r == nil && dir.Known() && journal.OK():
		return fail("the plugin has worked here, and its ledger is gone", dir, journal)
	case r == nil:
		return unknown("whether the ledger is what was written", dir, journal)
	case r.OK():
		return pass(fmt.Sprintf("%d events, their chain, tree and signatures", r.Size), dir)
	}
	var found []finding.Finding
	for i := range r.Problems[:min(len(r.Problems), maxProblems)] {
		found = append(found, problemFound(&r.Problems[i], dir)...)
	}
	if more := len(r.Problems) - maxProblems; more > 0 {
		found = append(found, fail(count(more, "more problem")+" of the ledger", dir)...)
	}
	return found
}

// problemFound weighs what only a power failure may have left less than what
// somebody must have done.
func problemFound(p *ledger.Problem, dir facts.Fact) []finding.Finding {
	seen := facts.Fact{Path: dir.Path, Value: string(p.Kind), How: dir.How}
	where := "the ledger"
	if p.File != "" {
		seen.Path += "/" + p.File
		where = p.File
	}
	if p.Line > 0 {
		where += fmt.Sprintf(", line %d", p.Line)
	}
	f := fail(where+": "+p.What, seen)
	f[0].Object = seen.Path
	if p.Kind == ledger.Unfinished {
		f[0].Severity = isolation.Medium
		f[0].Remediation = "start the plugin, which puts the rest aside and says so by an event; look for why it ended, where the node had no power failure"
	}
	return f
}

// anchored says what there is to compare: no file of the node can show what is
// kept elsewhere.
func anchored(n *facts.Node) []finding.Finding {
	r, dir := n.Ledger()
	switch {
	case r == nil && dir.Known():
		return notApplicable("there is no ledger", dir)
	case r == nil || r.Signed == "":
		return unknown("what the last checkpoint is", dir)
	}
	f := finding.Finding{
		State: finding.Manual,
		Text:  fmt.Sprintf("the last checkpoint, of %d events, is signed by the node: whether it has left the node, the node can't tell", r.Size),
		Remediation: "compare it with those that are kept elsewhere: `kata-vfio-audit cluster --node-report` does with the API server's, " +
			"`kata-vfio-audit ledger verify --anchor` with any",
		Evidence: []finding.Evidence{
			{Path: dir.Path, Value: ledger.OneLine(r.Signed), How: dir.How},
			{Path: dir.Path + "/" + ledger.PublicKeyFile, Value: r.Key, How: "read"},
		},
	}
	return []finding.Finding{f}
}

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// clockSkew is the possible difference between the clocks of nodes and API server.
const clockSkew = fleet.ClockSkew

func nodeChecks() []Check {
	return []Check{
		{ID: "K8S-024", Needs: []string{"resourceslices", "nodes"}, Judge: auditedLately},
		{ID: "K8S-025", Judge: auditsPass},
		{ID: "K8S-026", Needs: []string{"resourceclaims"}, Judge: recordsAgree},
		{ID: "K8S-027", Needs: []string{"resourceclaims"}, Judge: ledgersGoOn},
	}
}

// reports returns the latest credible report of each node, by its name.
func (s *State) reports() []fleet.NodeReport {
	var all []fleet.NodeReport
	reports, _ := s.credible()
	for _, r := range fleet.LatestReports(reports, s.isNode) {
		one, _ := agreed(r)
		all = append(all, one)
	}
	return all
}

func noReports() []finding.Finding {
	return notApplicable("no node's report was given (--node-report)")
}

func onNode(node, text string, seen ...rule.Evidence) finding.Finding {
	return fail("node "+node, "node "+node+" "+text, seen...)
}

func auditedLately(s *State) []finding.Finding {
	if len(s.Reports) == 0 {
		return noReports()
	}
	missing := map[string]bool{}
	for _, d := range s.Cluster.Devices() {
		if d.IsOurs() && d.Node != "" {
			missing[d.Node] = true
		}
	}
	_, found := s.credible()
	found = append(found, s.contradictions()...)
	reports := s.reports()
	for i := range reports {
		r := &reports[i]
		delete(missing, r.Node)
		if !s.Nodes[r.Node] {
			found = append(found, onNode(r.Node, "has a report, but is not in the cluster"))
		} else if text := r.Untimely(s.Now); text != "" {
			found = append(found, onNode(r.Node, text, saw("report of "+r.Node, r.Report.Subject.Time)))
		}
	}
	for _, node := range slices.Sorted(maps.Keys(missing)) {
		found = append(found, onNode(node, "publishes devices, but has no report of its own audit"))
	}
	return orPass(found, output.Count(len(reports), "node"))
}

// auditsPass summarizes each node: its verdict, and its counts.
func auditsPass(s *State) []finding.Finding {
	if len(s.reports()) == 0 {
		return noReports()
	}
	var found []finding.Finding
	reports := s.reports()
	for i := range reports {
		r := &reports[i]
		// Neither state answers the check: an error of the check itself is no better than a fact that could not be read.
		silent := r.Report.Summary.States[finding.Unknown] + r.Report.Summary.States[finding.Error]
		text := fmt.Sprintf("%s; %d unknown, %d waived", failedWords(r.Report), silent, r.Report.Summary.States[finding.Waived])
		f := onNode(r.Node, text, saw("report of "+r.Node, string(r.Report.Summary.Verdict)))
		switch {
		case r.Report.Summary.Fails():
			f.Severity = worst(r.Report)
			f.Exposure = widest(r.Report, finding.Fail)
		case r.Report.Summary.Verdict == finding.Unknown:
			f.State = finding.Unknown
			f.Exposure = widest(r.Report, finding.Unknown, finding.Error)
		default:
			continue
		}
		found = append(found, f)
	}
	return orPass(found, output.Count(len(reports), "node"))
}

// failedWords counts failures by severity: "has 2 failures: 1 critical, 1 low".
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
	return fmt.Sprintf("has %s: %s", output.Count(r.Summary.States[finding.Fail], "failure"), strings.Join(parts, ", "))
}

// worst returns the severity of the worst failure.
func worst(r *finding.Report) rule.Severity {
	for _, severity := range finding.Severities() {
		if r.Summary.Failed[severity] > 0 {
			return severity
		}
	}
	return rule.Info
}

// widest returns the worst exposure of the findings in the states. The finding that summarizes the report gets this exposure. It is
// empty if no finding has one: the summary then has the exposure of all tenants with devices.
func widest(r *finding.Report, states ...finding.State) finding.Exposure {
	for _, exposure := range finding.Exposures() {
		if slices.ContainsFunc(r.Findings, func(f finding.Finding) bool { return f.Exposure == exposure && slices.Contains(states, f.State) }) {
			return exposure
		}
	}
	return ""
}

// held is a device that a node has prepared, according to the API server. The plugin itself wrote the device's address and the
// ledger's checkpoint there.
type held struct {
	status *cluster.Status
	// since is when the device became ready.
	since time.Time
}

// held returns kata-vfio's devices on a node that are ready according to the API server.
func (s *State) held(node string) []held {
	var all []held
	for _, status := range s.Cluster.StatusesOn(node) {
		h := held{status: status}
		for _, condition := range status.Object.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				h.since = condition.LastTransitionTime.Time
			}
		}
		if !h.since.IsZero() {
			all = append(all, h)
		}
	}
	return all
}

// recordsAgree compares the nodes' journals at their audits with the API server's objects of that time. A claim that began or ended
// since then is not a contradiction.
func recordsAgree(s *State) []finding.Finding {
	if len(s.reports()) == 0 {
		return noReports()
	}
	var found []finding.Finding
	compared := 0
	reports := s.reports()
	others := recordedClaims(reports)
	for i := range reports {
		r := &reports[i]
		if r.Report.NodeRecords == nil {
			found = append(found, unknown("the report of node "+r.Node+" has no records of claims: an older version wrote it, or it covers only some checks")...)
			continue
		}
		compared++
		for _, h := range s.held(r.Node) {
			if h.since.Before(r.At.Add(-clockSkew)) {
				found = append(found, lacks(r, &h)...)
			}
		}
		for j := range r.Report.NodeRecords.Claims {
			c := &r.Report.NodeRecords.Claims[j]
			found = append(found, s.outlives(r, c)...)
			found = append(found, twice(others[c.UID], record{i, r, c})...)
		}
	}
	return orPass(found, output.Count(compared, "node"))
}

// lacks fails if a device is ready on the node according to the API server, but the node's journal does not have it, or has its claim
// in quarantine.
func lacks(r *fleet.NodeReport, h *held) []finding.Finding {
	name, owner := "claim "+h.status.Claim.Name(), h.status.Claim.Object
	at := func(text string) []finding.Finding {
		f := fail(name, fmt.Sprintf("%s is prepared on node %s since %s by the API server, and %s", name, r.Node, h.since.UTC().Format(time.RFC3339), text),
			saw("ResourceClaim "+h.status.Claim.Name()+" status.devices", h.status.Data.Address))
		return []finding.Finding{of(owner.Namespace, f)}
	}
	i := slices.IndexFunc(r.Report.NodeRecords.Claims, func(c finding.ClaimRecord) bool { return c.UID == string(owner.UID) })
	if i < 0 {
		return at("the node's journal does not know it")
	}
	c := &r.Report.NodeRecords.Claims[i]
	has := slices.ContainsFunc(c.Devices, func(a pci.Address) bool { return a.String() == h.status.Data.Address })
	switch {
	case h.status.Data.Address != "" && !has:
		return at("has other functions than " + h.status.Data.Address + " by the node's journal")
	case c.State == string(journal.Quarantined):
		return at("is in quarantine on the node")
	}
	return nil
}

// outlives fails if the node had a claim after its deletion: another claim with the same name existed already.
func (s *State) outlives(r *fleet.NodeReport, c *finding.ClaimRecord) []finding.Finding {
	k := s.Cluster.Claim(c.Namespace, c.Name)
	if k == nil || string(k.Object.UID) == c.UID || !k.Object.CreationTimestamp.Time.Before(r.At.Add(-clockSkew)) {
		return nil
	}
	name := "claim " + c.Namespace + "/" + c.Name
	f := fail(name, fmt.Sprintf("node %s had %s of the UID %s, which had been deleted before: it is %s there since %s", r.Node, name, c.UID, c.State, c.Since),
		saw("ResourceClaim "+c.Namespace+"/"+c.Name+" metadata.uid", string(k.Object.UID)))
	return []finding.Finding{of(c.Namespace, f)}
}

// record is a report's record of a claim.
type record struct {
	report int
	by     *fleet.NodeReport
	claim  *finding.ClaimRecord
}

// recordedClaims returns the records of all reports by the claim's UID.
func recordedClaims(reports []fleet.NodeReport) map[string][]record {
	all := map[string][]record{}
	for i := range reports {
		if r := &reports[i]; r.Report.NodeRecords != nil {
			for j := range r.Report.NodeRecords.Claims {
				c := &r.Report.NodeRecords.Claims[j]
				all[c.UID] = append(all[c.UID], record{i, r, c})
			}
		}
	}
	return all
}

// twice fails if another node had the same claim at the same time. It reports each pair of nodes once.
func twice(all []record, r record) []finding.Finding {
	var found []finding.Finding
	for _, o := range all {
		if o.report <= r.report {
			continue
		}
		first := r.by.At
		if o.by.At.Before(first) {
			first = o.by.At
		}
		// A report has only the claims at its time. If each node had the claim before the earlier of both reports, both had it at that time.
		if before(r.claim.Since, first) && before(o.claim.Since, first) {
			name := "claim " + r.claim.Namespace + "/" + r.claim.Name
			found = append(found, of(r.claim.Namespace, fail(name, fmt.Sprintf("%s was on the nodes %s and %s at one time", name, r.by.Node, o.by.Node))))
		}
	}
	return found
}

func before(since string, at time.Time) bool {
	t, err := time.Parse(time.RFC3339, since)
	return err == nil && t.Before(at.Add(-clockSkew))
}

// anchor is a checkpoint that was kept off a node. by is the time before which it was made.
type anchor struct {
	kept ledger.Anchor
	from string
	by   time.Time
}

// ledgersGoOn compares each node's ledger with its checkpoints that are kept elsewhere.
func ledgersGoOn(s *State) []finding.Finding {
	if len(s.reports()) == 0 {
		return noReports()
	}
	var found []finding.Finding
	ledgers, anchored := 0, 0
	reports := s.reports()
	for i := range reports {
		r := &reports[i]
		now, ok := fleet.Checkpoint(r.Report)
		if !ok {
			found = append(found, s.withoutLedger(r)...)
			continue
		}
		ledgers++
		anchors := s.checkpoints(r, now.Origin)
		if len(anchors) == 0 {
			f := unknown(fmt.Sprintf("nothing holds a checkpoint of node %s: Events pass away after an hour, and statuses with their claims; keep reports of it", r.Node))
			f[0].Object = "node " + r.Node
			found = append(found, f...)
			continue
		}
		anchored++
		for j := range anchors {
			if text := anchors[j].contradicts(r, &now); text != "" {
				f := onNode(r.Node, text, saw(anchors[j].from, ledger.OneLine(anchors[j].kept.Signed)), saw("report of "+r.Node, ledger.OneLine(now.Signed)))
				found = append(found, f)
			}
		}
	}
	if ledgers == 0 && len(found) == 0 {
		return notApplicable("no report has a ledger")
	}
	return orPass(found, output.Count(anchored, "ledger"))
}

// withoutLedger fails if the report of a node has no ledger although the node has signed checkpoints of one. A report without records
// says nothing about ledgers, which K8S-026 reports. Unknown is a ledger that could not be read, such as one that is too large for an
// audit, and that of an archive, which may have been collected without it.
func (s *State) withoutLedger(r *fleet.NodeReport) []finding.Finding {
	if r.Report.NodeRecords == nil {
		return nil
	}
	anchors := s.checkpoints(r, ledger.OriginPrefix+r.Node)
	if len(anchors) == 0 {
		return nil
	}
	last := slices.MaxFunc(anchors, func(a, b anchor) int { return cmp.Compare(a.kept.Size, b.kept.Size) })
	seen := []rule.Evidence{saw(last.from, ledger.OneLine(last.kept.Signed)), saw("report of "+r.Node, r.Report.Subject.Time)}
	if why := r.Report.NodeRecords.LedgerUnread; why != "" {
		f := onNode(r.Node, "has signed checkpoints, and its audit could not read the ledger to compare them", append(seen, saw("report of "+r.Node, why))...)
		f.State, f.Remediation = finding.Unknown, "compare them with the ledger on the node (`kata-vfio-audit ledger verify --anchor FILE`)"
		return []finding.Finding{f}
	}
	f := onNode(r.Node, "has signed checkpoints, and its report has no ledger: the ledger was deleted or altered", seen...)
	if r.Report.Subject.Kind == "archive" {
		f.State = finding.Unknown
	}
	return []finding.Finding{f}
}

// checkpoints returns the checkpoints of the ledger in claims' statuses and in older reports. A status counts only for the node of
// the device's pool. Only that node may write it, but the node can write anything there, including a checkpoint of another node's
// ledger.
func (s *State) checkpoints(r *fleet.NodeReport, origin string) []anchor {
	var all []anchor
	known := map[string]bool{} // by the note: all devices of a claim have the same checkpoint
	add := func(text, from string, by time.Time) {
		for _, a := range ledger.FindCheckpoints([]byte(text)) {
			if a.Origin == origin && !known[a.Signed] {
				known[a.Signed] = true
				all = append(all, anchor{kept: a, from: from, by: by})
			}
		}
	}
	for _, h := range s.held(r.Node) {
		add(h.status.Data.Ledger, "ResourceClaim "+h.status.Claim.Name()+" status.devices", s.Written[h.status.Claim.Object.UID])
	}
	for _, o := range r.Older {
		if o.NodeRecords != nil && o.NodeRecords.Ledger != nil {
			at, _ := time.Parse(time.RFC3339, o.Subject.Time)
			add(o.NodeRecords.Ledger.Checkpoint, "report of "+r.Node+" of "+o.Subject.Time, at)
		}
	}
	return all
}

// contradicts says why a checkpoint can't belong to the report's ledger; empty if it can.
func (a *anchor) contradicts(r *fleet.NodeReport, now *ledger.Anchor) string {
	v, err := note.NewVerifier(r.Report.NodeRecords.Ledger.Key)
	if err != nil {
		return "has no key for its ledger"
	}
	if _, err := ledger.OpenCheckpoint(now.Signed, v); err != nil {
		return "reports a checkpoint that its own key has not signed"
	}
	if _, err := ledger.OpenCheckpoint(a.kept.Signed, v); err != nil {
		return "has signed " + output.Count(int(a.kept.Size), "event") + " with another key than its ledger has now"
	}
	switch {
	// A ledger only grows, so each size has one root.
	case a.kept.Size == now.Size && a.kept.Root != now.Root:
		return "has other events now than the first " + output.Count(int(a.kept.Size), "event") + " that it had signed"
	// A checkpoint that may be newer than the report proves nothing.
	case a.kept.Size > now.Size && !a.by.IsZero() && a.by.Before(r.At.Add(-clockSkew)):
		return fmt.Sprintf("had signed %s before it reported %d: the last events were cut off, or an older ledger was restored", output.Count(int(a.kept.Size), "event"), now.Size)
	}
	return ""
}

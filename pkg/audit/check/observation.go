package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// observationChecks returns the checks of group OBS: they judge the node's history, whether its records agree, and the audit itself.
func observationChecks() []Check {
	return []Check{
		{ID: finding.LedgerSound, Judge: ledgerVerifies},
		{ID: "OBS-002", Judge: anchored},
		{ID: "OBS-003", Judge: checkReplay},
		{ID: "OBS-004", Review: coverage},
		{ID: "OBS-005", Judge: accountsAgree},
	}
}

// maxProblems limits the problems of a ledger that are listed. The first ones show where the damage begins.
const maxProblems = 16

func ledgerVerifies(n *facts.Node) Answer {
	r, dir := n.Ledger()
	records := n.Journal()
	switch {
	case r == nil && dir.Known() && records.Status == facts.Absent:
		return notApplicable("the plugin has never run here", dir, records)
	case r == nil && dir.Known() && records.OK():
		return fail("the plugin has run here, but its ledger is missing", dir, records)
	case r == nil:
		return unknown("whether the ledger was altered", dir, records)
	case r.OK():
		return pass(count(int(r.Size), "event")+" with a valid chain, tree and signatures", dir)
	}
	var found Answer
	for i := range r.Problems[:min(len(r.Problems), maxProblems)] {
		found = append(found, problemFound(&r.Problems[i], dir)...)
	}
	if more := len(r.Problems) - maxProblems; more > 0 {
		found = append(found, fail(count(more, "more problem")+" of the ledger", dir)...)
	}
	return found
}

// problemFound gives a problem that a power failure can cause a lower severity than one that a person must have caused.
func problemFound(p *ledger.Problem, dir facts.Fact) Answer {
	seen := facts.Fact{Path: dir.Path, Value: string(p.Kind), How: dir.How}
	where := "the ledger"
	if p.File != "" {
		seen.Path += "/" + p.File
		where = p.File
	}
	if p.Line > 0 {
		where += fmt.Sprintf(", line %d", p.Line)
	}
	f := fail(where+": "+p.What, seen).object(seen.Path)
	if p.Kind == ledger.Unfinished {
		return f.weighs(rule.Medium).
			fix("start the plugin, which moves the rest aside and records an event; if the node had no power failure, find out why the ledger ended")
	}
	return f
}

// anchored leaves the comparison with an anchor to a person, and names the checkpoint to compare, because no file of the node shows
// a copy that is kept elsewhere.
func anchored(n *facts.Node) Answer {
	r, dir := n.Ledger()
	switch {
	case r == nil && dir.Known():
		return notApplicable("the node has no ledger", dir)
	case r == nil || r.Signed == "":
		return unknown("the last checkpoint", dir)
	}
	text := "the node signed the last checkpoint, of " + count(int(r.Size), "event") + ", but can't tell whether a copy is off the node"
	return say(finding.Manual, text, []facts.Fact{
		{Path: dir.Path, Value: ledger.OneLine(r.Signed), How: dir.How},
		{Path: dir.Path + "/" + ledger.PublicKeyFile, Value: r.Key, How: "read"},
	}).fix("compare it with external copies: `kata-vfio-audit cluster --node-report` uses those of the API server, " +
		"`kata-vfio-audit ledger verify --anchor` any")
}

// replayed has the records that are compared. They are read one after the other, and the journal is read again at the end, to
// distinguish changes in progress from faults.
type replayed struct {
	node   *facts.Node
	report *ledger.Report
	replay *facts.Replay
	ledger facts.Fact
	after  []*journal.Record
}

func checkReplay(n *facts.Node) Answer {
	_, seen := n.Holdings() // read before the ledger, because the ledger has a holder's event before the holder opens the device
	told, dir := n.Replay()
	b := &replayed{node: n, replay: told, ledger: dir}
	if b.report, _ = n.Ledger(); b.report == nil {
		if dir.Known() {
			return notApplicable("the node has no ledger", dir)
		}
		return unknown("the ledger's history", dir)
	}
	if p := b.report.Problems; len(p) > 0 { // an unreadable event must not count as a missing one
		dir.Status, dir.Err = facts.Broken, "it was altered ("+finding.LedgerSound+"): "+p[0].What
		return unknown("the current state by the ledger", dir)
	}
	var damaged []facts.Fact
	b.after, damaged = n.JournalNow()
	records := slices.DeleteFunc(slices.Clone(n.AllRecords()), func(rec *journal.Record) bool { return !n.IsThisBoot(rec) || !b.stands(rec) })
	found := append(over(records, b.record), b.orphans()...)
	if hidden := slices.Concat(n.Damaged, damaged); len(hidden) > 0 {
		found = append(found, unknown("whether the ledger has all assignments", hidden...)...)
	} else {
		found = append(found, b.forgotten()...)
	}
	if !seen.OK() && anyOnVFIO(n) {
		found = append(found, unknown("whether the ledger has all holders", seen)...)
	}
	return found.or(pass(fmt.Sprintf("%s and %s match the ledger", count(len(records), "record"), count(len(told.Claims), "binding")), dir, n.Journal()))
}

// stands reports whether a record was the same at both reads of the journal, and in a state that lasts. A record that is changing
// is not compared.
func (b *replayed) stands(rec *journal.Record) bool {
	return slices.ContainsFunc(b.after, func(r *journal.Record) bool {
		return r.ID() == rec.ID() && r.State == rec.State && r.Since == rec.Since && describeSandbox(r) == describeSandbox(rec)
	}) && (rec.State == journal.Prepared || rec.State == journal.Quarantined)
}

func describeSandbox(rec *journal.Record) string {
	if rec.Sandbox == nil {
		return ""
	}
	return rec.Sandbox.ID
}

// record compares one record with the ledger, and its functions with both.
func (b *replayed) record(rec *journal.Record) Answer {
	c := b.replay.Claims[rec.ID()]
	if c == nil {
		return b.untold(rec)
	}
	found := over(rec.Plan.Functions, func(fn plan.Function) Answer {
		var unlisted Answer
		if !slices.Contains(c.Devices, fn.Address) {
			unlisted = fail(fmt.Sprintf("%s has %s, which its event %d does not list", claimName(rec), fn.Address, c.Event), b.ledger).at(fn.Address)
		}
		return append(unlisted, b.driver(rec, &fn)...)
	})
	return append(found, b.sandbox(rec, c)...).object(claimName(rec))
}

// untold is the answer for a claim that has functions, but no event in the ledger. If retention dropped events, the answer is unknown.
func (b *replayed) untold(rec *journal.Record) Answer {
	if b.report.Dropped > 0 {
		return unknown(fmt.Sprintf("whether the ledger had an event of %s, since retention dropped events", claimName(rec)), b.ledger).ofRecord(rec)
	}
	return fail(claimName(rec)+" has functions without an event in the ledger", b.ledger, stateFact(rec)).ofRecord(rec)
}

// driver compares the driver of a function with the last binding in the ledger.
// Kata, not the plugin, binds physical endpoints.
func (b *replayed) driver(rec *journal.Record, fn *plan.Function) Answer {
	f, ok := b.node.Snapshot.Function(fn.Address)
	if !ok || f.Locked || fn.Endpoint != nil || rec.State != journal.Prepared {
		return nil
	}
	told, known := b.replay.Drivers[fn.Address]
	if !known && b.report.Dropped > 0 {
		return nil
	}
	if !known {
		// Without an event, the plugin never bound the function, which must be on the driver that it had before.
		told = fn.Original.Driver
	}
	now, ok := b.node.DriverNow(fn.Address)
	if !ok || now == told {
		return nil
	}
	seen := driverFact(f)
	seen.Value = now
	return fail(fmt.Sprintf("%s of %s is on %s, but by the ledger on %s", fn.Address, claimName(rec),
		cmp.Or(now, "no driver"), cmp.Or(told, "none")), seen, b.ledger).at(fn.Address)
}

// sandbox compares the sandbox of the functions with the ledger's last hand-over.
func (b *replayed) sandbox(rec *journal.Record, c *facts.ReplayedClaim) Answer {
	has := describeSandbox(rec)
	switch {
	case has == "" || has == c.Sandbox:
		return nil
	case has != c.Last:
		return fail(fmt.Sprintf("sandbox %.12s has the functions of %s without an event in the ledger", has, claimName(rec)), b.ledger, recordFact(rec, has))
	}
	for _, a := range rec.Plan.Addresses() {
		for _, h := range b.node.Holders(a) {
			return fail(fmt.Sprintf("%s still holds %s of %s, though its sandbox ended by the ledger", h.Process.String(), a, claimName(rec)), h.Fact(), b.ledger).at(a)
		}
	}
	return nil
}

// orphans fails for functions that are on VFIO without a record, but on another driver by the ledger: something other
// than the plugin bound them.
func (b *replayed) orphans() Answer {
	return over(slices.SortedFunc(maps.Keys(b.replay.Drivers), pci.Address.Compare), func(a pci.Address) Answer {
		told := b.replay.Drivers[a]
		now, ok := b.node.DriverNow(a)
		has := func(rec *journal.Record) bool {
			_, ok := rec.Plan.Function(a)
			return ok
		}
		if !ok || device.IsVFIO(told) || !device.IsVFIO(now) || b.anyRecord(has) {
			return nil
		}
		return fail(fmt.Sprintf("%s is on %s, but by the ledger on %s", a, now, cmp.Or(told, "no driver")), link(a, "driver", now), b.ledger).at(a)
	})
}

// anyRecord reports whether so is true for a record, before or after the comparison.
func (b *replayed) anyRecord(so func(*journal.Record) bool) bool {
	return slices.ContainsFunc(b.node.AllRecords(), so) || slices.ContainsFunc(b.after, so)
}

// forgotten fails for claims that have functions by the ledger, but no record in the journal.
func (b *replayed) forgotten() Answer {
	return over(slices.Sorted(maps.Keys(b.replay.Claims)), func(uid string) Answer {
		if b.anyRecord(func(rec *journal.Record) bool { return rec.ID() == uid }) {
			return nil
		}
		c := b.replay.Claims[uid]
		name := "claim " + uid
		if c.Claim.Name != "" {
			name = "claim " + c.Claim.Namespace + "/" + c.Claim.Name
		}
		return fail(fmt.Sprintf("%s has functions by event %d of the ledger, but no record in the journal", name, c.Event), b.ledger, b.node.Journal()).
			object(name).reaching(c.Devices...)
	})
}

func accountsAgree(n *facts.Node) Answer {
	return judgeRecords(n, "what is prepared", func(rec *journal.Record) Answer {
		switch {
		case rec.State == journal.Quarantined:
			return nil
		case !n.IsThisBoot(rec):
			return fail(fmt.Sprintf("%s is %s by a record from before the last boot", claimName(rec), rec.State), recordFact(rec, rec.BootID)).reaching(rec.Plan.Addresses()...)
		case rec.State != journal.Prepared:
			return nil // the claim is being prepared or released
		}
		found := over(rec.Plan.Functions, func(fn plan.Function) Answer { return functionAgrees(n, rec, &fn).at(fn.Address) })
		return append(found, specAgrees(n, rec)...)
	})
}

// functionAgrees compares one function of a prepared claim with the kernel. A
// physical endpoint is on the driver to which Kata has bound it.
func functionAgrees(n *facts.Node, rec *journal.Record, fn *plan.Function) Answer {
	f, ok := n.Snapshot.Function(fn.Address)
	name := fmt.Sprintf("%s of %s ", fn.Address, claimName(rec))
	switch {
	case !ok:
		return fail(name+"is not on the PCI bus", recordFact(rec, fn.Address.String()))
	case fn.Endpoint != nil || f.Locked:
		return nil
	case f.Driver != fn.Target.Driver:
		return fail(name+fmt.Sprintf("is on %s, not on %s", cmp.Or(f.Driver, "no driver"), fn.Target.Driver), driverFact(f), recordFact(rec, fn.Target.Driver))
	case f.Group != nil && *f.Group != fn.Group:
		return fail(name+fmt.Sprintf("moved to IOMMU group %d from %d", *f.Group, fn.Group), recordFact(rec, fmt.Sprint(fn.Group)))
	}
	return nil
}

// specAgrees looks for the claim's devices in its CDI spec.
func specAgrees(n *facts.Node, rec *journal.Record) Answer {
	all, dirs := runtimes.Specs(n)
	i := slices.IndexFunc(all, func(s facts.Spec) bool { return s.Claim == rec.ID() })
	if i < 0 {
		return fail(claimName(rec)+" is prepared but has no CDI spec", append(slices.Clone(dirs), stateFact(rec))...).reaching(rec.Plan.Addresses()...)
	}
	given := n.Gives(&all[i])
	for _, d := range rec.Plan.Devices {
		name := cdi.DeviceName(rec.ID(), d.Name)
		has := slices.ContainsFunc(given, func(g facts.Given) bool { return g.Device == name && !g.IsControl() })
		if d.Attachment != v1alpha1.AttachPhysicalEndpoint && !has {
			return fail(fmt.Sprintf("the CDI spec of %s has no VFIO node for %s", claimName(rec), d.Address), specFact(n, &all[i])).at(d.Address)
		}
	}
	return nil
}

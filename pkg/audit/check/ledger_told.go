package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

func replayCheck() Check {
	return Check{Rule: finding.Rule{
		ID: "OBS-003", Title: "What stands now is what the ledger tells", Severity: isolation.High,
		Why:    "a device that changed hands without an event is one whose tenants nobody can name later",
		Fix:    "find out who changed it: nobody but the plugin should; its next start writes what is missing, marked as late",
		Verify: "kata-vfio-audit who; kata-vfio-audit ledger show --since 24h",
	}, Judge: checkReplay}
}

// replayed are the accounts that are compared: each read after the one before, and
// the journal once more behind them all, so that what goes on meanwhile is told
// from what is wrong.
type replayed struct {
	node   *facts.Node
	report *ledger.Report
	replay *facts.Replay
	ledger facts.Fact
	after  []*journal.Record
}

func checkReplay(n *facts.Node) []finding.Finding {
	_, seen := n.Holdings() // first: a holder's event comes before it
	told, dir := n.Replay()
	b := &replayed{node: n, replay: told, ledger: dir}
	if b.report, _ = n.Ledger(); b.report == nil {
		if dir.Known() {
			return notApplicable("there is no ledger", dir)
		}
		return unknown("what the ledger tells", dir)
	}
	if p := b.report.Problems; len(p) > 0 { // events that can't be read are not events that are not there
		dir.Status, dir.Err = facts.Broken, "it is not what was written ("+LedgerSound+"): "+p[0].What
		return unknown("what the ledger tells of what stands now", dir)
	}
	var damaged []facts.Fact
	b.after, damaged = n.JournalNow()
	var found []finding.Finding
	looked := 0
	for _, rec := range n.AllRecords() {
		if n.IsThisBoot(rec) && b.stands(rec) {
			looked++
			found = append(found, b.record(rec)...)
		}
	}
	found = append(found, b.orphans()...)
	if len(damaged)+len(n.Damaged) > 0 {
		found = append(found, unknown("whether all that stands was told", slices.Concat(n.Damaged, damaged)...)...)
	} else {
		found = append(found, b.forgotten()...)
	}
	if !seen.OK() && anyOnVFIO(n) {
		found = append(found, unknown("whether all holders were told of", seen)...)
	}
	if len(found) > 0 {
		return found
	}
	return pass(fmt.Sprintf("%s and %s by the ledger", count(looked, "record"), count(len(told.Claims), "binding")), dir, n.Journal())
}

// stands reports whether a record was the same before and after: what changes
// just now is not compared.
func (b *replayed) stands(rec *journal.Record) bool {
	return slices.ContainsFunc(b.after, func(r *journal.Record) bool {
		return r.ID() == rec.ID() && r.State == rec.State && r.Since == rec.Since && sandboxOf(r) == sandboxOf(rec)
	}) && (rec.State == journal.Prepared || rec.State == journal.Quarantined)
}

func sandboxOf(rec *journal.Record) string {
	if rec.Sandbox == nil {
		return ""
	}
	return rec.Sandbox.ID
}

// record compares one record with the ledger, and its functions with both.
func (b *replayed) record(rec *journal.Record) []finding.Finding {
	c := b.replay.Claims[rec.ID()]
	if c == nil {
		return b.about(rec, b.untold(rec))
	}
	var found []finding.Finding
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if !slices.Contains(c.Devices, fn.Address) {
			found = append(found, onFunction(fn.Address, fail(fmt.Sprintf("%s has %s, of which its event %d says nothing", claimName(rec), fn.Address, c.Event), b.ledger))...)
		}
		found = append(found, b.driver(rec, fn)...)
	}
	return b.about(rec, append(found, b.sandbox(rec, c)...))
}

// untold is about a claim that has functions and no event. What retention may have
// dropped can't be known.
func (b *replayed) untold(rec *journal.Record) []finding.Finding {
	f := fail(claimName(rec)+" has functions, and the ledger has no event of that", b.ledger, recordFact(rec, string(rec.State)))
	if b.report.Dropped > 0 {
		f = unknown(fmt.Sprintf("whether %s was told of: the events that retention dropped may have", claimName(rec)), b.ledger)
	}
	f[0].Devices = rec.Plan.Addresses()
	return f
}

// driver compares the driver of a function with the last binding that was told.
// What Kata binds, a physical endpoint, is not the plugin's to tell.
func (b *replayed) driver(rec *journal.Record, fn *plan.Function) []finding.Finding {
	f, ok := b.node.Snapshot.Function(fn.Address)
	if !ok || f.Locked || fn.Endpoint != nil || rec.State != journal.Prepared {
		return nil
	}
	told, known := b.replay.Drivers[fn.Address]
	if !known && b.report.Dropped > 0 {
		return nil
	}
	if !known {
		told = fn.Original.Driver
	}
	now, ok := b.node.DriverNow(fn.Address)
	if !ok || now == told {
		return nil
	}
	seen := driverFact(f)
	seen.Value = now
	return onFunction(fn.Address, fail(fmt.Sprintf("%s of %s is on %s, and by the ledger on %s", fn.Address, claimName(rec),
		orElse(now, "no driver"), orElse(told, "none")), seen, b.ledger))
}

// sandbox compares who has the functions with the last hand-over that was told.
func (b *replayed) sandbox(rec *journal.Record, c *facts.ReplayedClaim) []finding.Finding {
	has := sandboxOf(rec)
	switch {
	case has == "" || has == c.Sandbox:
		return nil
	case has != c.Last:
		return fail(fmt.Sprintf("sandbox %.12s has the functions of %s, and the ledger has no event of that", has, claimName(rec)), b.ledger, recordFact(rec, has))
	}
	for _, a := range rec.Plan.Addresses() {
		for _, h := range b.node.HoldersOf(a) {
			return onFunction(a, fail(fmt.Sprintf("%s still holds %s of %s, whose sandbox has ended by the ledger", h.Process.String(), a, claimName(rec)), h.Fact(), b.ledger))
		}
	}
	return nil
}

func (b *replayed) about(rec *journal.Record, found []finding.Finding) []finding.Finding {
	for i := range found {
		found[i].Object = claimName(rec)
	}
	return found
}

// orphans are functions that VFIO has, that no record is about, and that the ledger
// told of last with another driver: somebody else has bound them.
func (b *replayed) orphans() []finding.Finding {
	var found []finding.Finding
	for _, a := range slices.SortedFunc(maps.Keys(b.replay.Drivers), pci.Address.Compare) {
		told := b.replay.Drivers[a]
		now, ok := b.node.DriverNow(a)
		if !ok || device.IsVFIO(told) || !device.IsVFIO(now) || hasRecord(b.node.AllRecords(), a) || hasRecord(b.after, a) {
			continue
		}
		seen := facts.Fact{Path: "/sys/bus/pci/devices/" + a.String() + "/driver", Value: now, How: "link"}
		found = append(found, onFunction(a, fail(fmt.Sprintf("%s is on %s, and by the ledger on %s", a, now, orElse(told, "no driver")), seen, b.ledger))...)
	}
	return found
}

func hasRecord(records []*journal.Record, a pci.Address) bool {
	return slices.ContainsFunc(records, func(rec *journal.Record) bool {
		_, ok := rec.Plan.Function(a)
		return ok
	})
}

// forgotten are claims that have functions by the ledger and no record.
func (b *replayed) forgotten() []finding.Finding {
	var found []finding.Finding
	for _, uid := range slices.Sorted(maps.Keys(b.replay.Claims)) {
		is := func(rec *journal.Record) bool { return rec.ID() == uid }
		if slices.ContainsFunc(b.node.AllRecords(), is) || slices.ContainsFunc(b.after, is) {
			continue
		}
		c := b.replay.Claims[uid]
		name := "claim " + uid
		if c.Claim.Name != "" {
			name = "claim " + c.Claim.Namespace + "/" + c.Claim.Name
		}
		f := fail(fmt.Sprintf("by event %d of the ledger %s has functions, and the journal has no record of it", c.Event, name), b.ledger, b.node.Journal())
		f[0].Object, f[0].Devices = name, c.Devices
		found = append(found, f...)
	}
	return found
}

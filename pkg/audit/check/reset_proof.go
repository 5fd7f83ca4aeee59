package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// resetProofChecks are about the proof of a reset, and about data that resets do not clear.
func resetProofChecks() []Check {
	return []Check{
		{ID: "RST-004", Judge: provenClean},
		{ID: "RST-005", Judge: quarantineHolds},
		{ID: "RST-006", Judge: busResetGPUs},
		{ID: "RST-007", Judge: byHand(device.GPU, "no file shows whether GPU memory is cleared: ask the node's operator for the procedure and its log")},
		{ID: "RST-008", Judge: functionsAnswer},
		{ID: "RST-010", Judge: drivesAreSanitized},
		{ID: "RST-012", Judge: noOptionROM},
		{ID: "RST-014", Judge: firmwareAccepted},
	}
}

// drivesAreSanitized passes for drives that a sanitizing stage wipes between tenants. Others are left to a person: their
// operator may sanitize them by other means.
func drivesAreSanitized(n *facts.Node) Answer {
	drives := slices.DeleteFunc(assignable(n), func(f *device.Function) bool { return f.Type != device.NVMe })
	if len(drives) == 0 {
		return notApplicable("none is assignable")
	}
	proofs := n.StageProofs()
	var unproven []*device.Function
	for _, f := range drives {
		if !proofs.Unread.Known() && proofs.Asked[f.Address] {
			return unknown("whether drives are sanitized", proofs.Unread)
		}
		if _, proven := proofs.Of[f.Address]; !proven {
			unproven = append(unproven, f)
		}
	}
	if len(unproven) > 0 {
		return say(finding.Manual, "no file shows whether drives are sanitized: ask the node's operator for the procedure and its log", nil).
			reaching(addresses(unproven)...)
	}
	return showing(pass(count(len(drives), "drive")+": the last sanitizing stage proved it clean"), drives, one(func(f *device.Function) facts.Fact { return proofs.Of[f.Address] }))
}

// firmwareAccepted fails for firmware that changed since an operator accepted it. The policy Require keeps such a device in
// quarantine; the policy Record lets tenants have it.
func firmwareAccepted(n *facts.Node) Answer {
	proofs := n.StageProofs()
	functions := slices.DeleteFunc(assignable(n), func(f *device.Function) bool {
		_, measured := proofs.Firmware[f.Address]
		return !measured
	})
	if !proofs.Unread.Known() && len(proofs.Asked) > 0 {
		return unknown("whether firmware changed", proofs.Unread)
	}
	if len(functions) == 0 {
		return notApplicable("no sanitizing stage has measured firmware")
	}
	file := one(func(f *device.Function) facts.Fact { return proofs.Firmware[f.Address].File })
	found := over(functions, func(f *device.Function) Answer {
		changes := proofs.Firmware[f.Address].Changes
		if len(changes) == 0 {
			return nil
		}
		return fail(fmt.Sprintf("the firmware of %s changed: %s", f.Address, strings.Join(changes, "; ")), file(f)...).on(f)
	})
	return showing(found.or(pass(count(len(functions), "function")+" with the firmware that was accepted")), functions, file)
}

// judgeRecords judges each claim's record, and adds an unknown finding for each unreadable one.
func judgeRecords(n *facts.Node, what string, wrong func(*journal.Record) Answer) Answer {
	records, dir := n.Records(), n.Journal()
	found := over(records, func(rec *journal.Record) Answer { return wrong(rec).object(claimName(rec)) })
	found = append(found, over(n.Damaged, func(file facts.Fact) Answer { return unknown(what, file) })...)
	if len(found) == 0 && !dir.Known() {
		return unknown(what, dir)
	}
	if len(records) == 0 {
		return found.or(notApplicable("no claim is prepared", dir))
	}
	return showing(found.or(pass(count(len(records), "claim"), dir)), records, one(stateFact))
}

// provenClean reads the journal: marks of functions without a proven reset, the proofs themselves, and
// fingerprints to prove the next reset. Earlier claims are in the ledger.
func provenClean(n *facts.Node) Answer {
	files, dir := n.NeedsReset()
	marks := newMarkFiles(n, files)
	said := judgeRecords(n, "whether functions were reset", func(rec *journal.Record) Answer {
		found := over(rec.Plan.Reachable(), func(a pci.Address) Answer { return cleanliness(n, rec, a, marks).at(a) })
		return append(found, badProofs(rec)...)
	})
	if !dir.Known() {
		return append(said, unknown("which functions need a reset", dir)...)
	}
	return said
}

// cleanliness returns the fault of one function that a claim holds, or nil.
func cleanliness(n *facts.Node, rec *journal.Record, a pci.Address, marks *markFiles) Answer {
	if !n.IsThisBoot(rec) {
		return nil // by this record, no VM has the function; another check reports that the record still exists
	}
	mark, unclean := marks.find(rec, a)
	hasProof := slices.ContainsFunc(rec.Proofs, func(p isolation.Proof) bool { return slices.Contains(p.Set, a) })
	measured := slices.ContainsFunc(rec.Baseline, func(fp isolation.Fingerprint) bool { return fp.Address == a })
	switch {
	case rec.State == journal.Prepared && unclean && !hasProof:
		return fail(fmt.Sprintf("%s has %s without a proven reset since its last tenant", claimName(rec), a), mark)
	case rec.State == journal.Prepared && !measured:
		return fail(fmt.Sprintf("%s has no fingerprint from before %s: its next reset can't be proven", a, claimName(rec)), recordFact(rec, "no baseline"))
	case rec.State == journal.Cleaned && !unclean && !hasProof:
		return fail(fmt.Sprintf("%s counts as clean after %s without a proven reset", a, claimName(rec)), recordFact(rec, "cleaned without proof"))
	}
	return nil
}

// markFiles finds the files of marks.
type markFiles struct {
	all    []facts.ResetMark
	finder *journal.ResetMarkFinder
}

func newMarkFiles(n *facts.Node, all []facts.ResetMark) *markFiles {
	marks := make([]journal.ResetMark, len(all))
	for i := range all {
		marks[i] = all[i].Mark
	}
	return &markFiles{all: all, finder: journal.NewResetMarkFinder(marks, n.Snapshot)}
}

// find returns the file of the mark of a record's function, even if the file is named by an earlier address of the function.
func (m *markFiles) find(rec *journal.Record, a pci.Address) (facts.Fact, bool) {
	var id device.Identity
	if fn, ok := rec.Plan.Function(a); ok {
		id = fn.Identity
	}
	i, ok := m.finder.Find(a, id)
	if !ok {
		return facts.Fact{}, false
	}
	return m.all[i].File, true
}

// badProofs fails for each proof that does not prove the reset.
func badProofs(rec *journal.Record) Answer {
	return over(rec.Proofs, func(p isolation.Proof) Answer {
		return over(p.Set, func(a pci.Address) Answer {
			why := disproof(&p, a)
			if why == "" {
				return nil
			}
			return fail("the reset is not proven: "+why, recordFact(rec, fmt.Sprintf("reset by %s in %d ms", p.Method, p.Milliseconds))).at(a)
		})
	})
}

func disproof(p *isolation.Proof, a pci.Address) string {
	is := func(fp isolation.Fingerprint) bool { return fp.Address == a }
	before, after := slices.IndexFunc(p.Before, is), slices.IndexFunc(p.After, is)
	if before < 0 || after < 0 {
		return fmt.Sprintf("no fingerprints of %s", a)
	}
	return isolation.Compare(p.Before[before], p.After[after])
}

// quarantineHolds fails for functions that are in use although their reset failed.
func quarantineHolds(n *facts.Node) Answer {
	return judgeRecords(n, "which resets failed", func(rec *journal.Record) Answer {
		if rec.State != journal.Quarantined {
			return nil
		}
		return over(rec.Plan.Reachable(), func(a pci.Address) Answer {
			why, seen := inUse(n, rec, a)
			if why == "" {
				return unseenHolders(n, "whether a process holds "+a.String()+", whose reset failed").at(a)
			}
			return fail(fmt.Sprintf("the reset of %s failed (%s), but %s", a, cmp.Or(rec.Reason, "no reason recorded"), why), seen, stateFact(rec)).at(a)
		})
	})
}

// inUse describes the use of a function in spite of its quarantine.
func inUse(n *facts.Node, rec *journal.Record, a pci.Address) (string, facts.Fact) {
	if offered, seen := n.IsOffered(a); offered {
		return "it is still published", seen
	}
	if claims := preparedFor(n, a); len(claims) > 0 {
		return "it is prepared for " + claimName(claims[0]), stateFact(claims[0])
	}
	if held := n.Holders(a); len(held) > 0 {
		return "it is held by " + held[0].Process.String(), held[0].Fact()
	}
	f, ok := n.Snapshot.Function(a)
	if ok && n.IsThisBoot(rec) && f.Driver != "" && !f.OnVFIO() {
		return "the node uses it with driver " + f.Driver, driverFact(f)
	}
	return "", facts.Fact{}
}

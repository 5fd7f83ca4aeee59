package check

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func resetProofChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RST-004", Title: "A function was proven clean before its tenant got it, and can be after", Severity: isolation.Critical,
			Why:    "without a reset between two tenants the second one has the first one's memory, code and settings",
			Fix:    "delete the pod, so that the function is reset; let its class ask for resets",
			Verify: "ls /var/lib/kata-vfio/journal/unclean; grep -lE '\"proofs\"|\"baseline\"' /var/lib/kata-vfio/journal/*.json",
		}, Judge: provenClean},
		{Rule: finding.Rule{
			ID: "RST-005", Title: "A function whose reset failed is out of use", Severity: isolation.Critical,
			Why:    "who gets it next gets what the last tenant left in it",
			Fix:    "restart the plugin, which takes it from its slice; reboot the node or replace the device where resets go on failing",
			Verify: "grep -l '\"quarantined\"' /var/lib/kata-vfio/journal/*.json; cat /run/kata-vfio/published.json",
		}, Judge: quarantineHolds},
		{Rule: finding.Rule{
			ID: "RST-006", Title: "GPUs of NVIDIA's Hopper and later are reset by their bus", Severity: isolation.High,
			Why:     "on an H200 a function level reset was seen to keep the state of the security processor's sessions, which a reset of the bus clears",
			Fix:     "`echo bus > /sys/bus/pci/devices/<address>/reset_method` at boot, before claims are prepared",
			Verify:  "grep -H . /sys/bus/pci/devices/*/reset_method",
			Sources: []string{"Dstack-TEE/dstack pull request 1048"},
		}, Judge: busResetGPUs},
		{Rule: finding.Rule{
			ID: "RST-007", Title: "The memory of GPUs is cleared between tenants", Severity: isolation.High, Static: true,
			Why:     "a reset need not clear a GPU's memory: what one tenant left there was read by another before",
			Fix:     "clear it between tenants by the vendor's means: confidential mode, or NVIDIA's gpu-admin-tools (--clear-memory)",
			Sources: []string{"CVE-2023-4969", "NVIDIA: gpu-admin-tools README"},
		}, Judge: gpuMemory},
		{Rule: finding.Rule{
			ID: "RST-008", Title: "Functions that are given away answer", Severity: isolation.Medium, Cheap: true,
			Why:     "configuration space of all ones is a function that a reset or a fault took off the bus: nothing about it is proven",
			Fix:     isolation.Fix(isolation.Dead),
			Verify:  "lspci -x -s <address>",
			Sources: []string{"amd/MxGPU issue 25"},
		}, Judge: functionsAnswer},
		{Rule: finding.Rule{
			ID: "RST-010", Title: "NVMe drives are sanitized between tenants", Severity: isolation.High, Static: true,
			Why:    "no reset clears what a drive stores",
			Fix:    "`nvme sanitize` or `nvme format --ses` between tenants, and keep its log; give tenants volumes in place of drives",
			Verify: "nvme sanitize-log <drive>",
		}, Judge: drives},
	}
}

// judgeRecords asks about each claim's record, and adds those that can't be read.
func judgeRecords(n *facts.Node, what string, wrong func(*journal.Record) []finding.Finding) []finding.Finding {
	var found []finding.Finding
	for _, rec := range n.Records() {
		for _, f := range wrong(rec) {
			f.Object = claimName(rec)
			found = append(found, f)
		}
	}
	for _, file := range n.Damaged {
		found = append(found, unknown(what, file)...)
	}
	dir := n.Journal()
	switch {
	case len(found) > 0:
		return found
	case !dir.Known():
		return unknown(what, dir)
	case len(n.Records()) == 0:
		return notApplicable("no claim has a function", dir)
	}
	return showing(pass(count(len(n.Records()), "claim"), dir), n.Records(), func(rec *journal.Record) []facts.Fact {
		return []facts.Fact{recordFact(rec, string(rec.State))}
	})
}

func recordFact(rec *journal.Record, value string) facts.Fact {
	return facts.Fact{Path: "/var/lib/kata-vfio/journal/" + rec.ID() + ".json", Value: value, How: "journal"}
}

// recordOf is the record by which somebody has a function.
func recordOf(t *facts.Tenancy) facts.Fact { return recordFact(t.Record, string(t.Record.State)) }

// onFunction says which function a failure is about.
func onFunction(a pci.Address, found []finding.Finding) []finding.Finding {
	for i := range found {
		found[i].Device = new(a)
	}
	return found
}

// provenClean reads what the journal knows: marks of functions without a proven
// reset, the proofs themselves, and fingerprints to prove the next by. What was
// before is for the ledger to say.
func provenClean(n *facts.Node) []finding.Finding {
	marks, dir := n.NeedsReset()
	said := judgeRecords(n, "whether functions were reset", func(rec *journal.Record) []finding.Finding {
		var found []finding.Finding
		for _, a := range rec.Plan.Reachable() {
			if f := cleanliness(n, rec, a, marks); f != nil {
				found = append(found, onFunction(a, f)...)
			}
		}
		return append(found, badProofs(rec)...)
	})
	if !dir.Known() {
		return append(said, unknown("which functions are marked as not clean", dir)...)
	}
	return said
}

// cleanliness says what is wrong with one function in a claim's hands, nil for
// nothing.
func cleanliness(n *facts.Node, rec *journal.Record, a pci.Address, marks map[pci.Address]facts.Fact) []finding.Finding {
	if !n.IsThisBoot(rec) {
		return nil // nobody has it by that record; that it is still there is another check's
	}
	mark, unclean := marks[a]
	hasProof := slices.ContainsFunc(rec.Proofs, func(p isolation.Proof) bool { return slices.Contains(p.Set, a) })
	measured := slices.ContainsFunc(rec.Baseline, func(fp isolation.Fingerprint) bool { return fp.Address == a })
	switch {
	case rec.State == journal.Prepared && unclean && !hasProof:
		return fail(fmt.Sprintf("%s has %s, though no reset of it is proven since its last tenant", claimName(rec), a), mark)
	case rec.State == journal.Prepared && !measured:
		return fail(fmt.Sprintf("there is no fingerprint of %s from before %s: its next reset can't be proven", a, claimName(rec)), recordFact(rec, "no baseline"))
	case rec.State == journal.Cleaned && !unclean && !hasProof:
		return fail(fmt.Sprintf("%s is taken for clean after %s without the proof of a reset", a, claimName(rec)), recordFact(rec, "cleaned without proof"))
	}
	return nil
}

// badProofs returns the proofs that prove nothing.
func badProofs(rec *journal.Record) []finding.Finding {
	var found []finding.Finding
	for i := range rec.Proofs {
		p := &rec.Proofs[i]
		for _, a := range p.Set {
			if why := disproof(p, a); why != "" {
				seen := recordFact(rec, fmt.Sprintf("reset by %s in %d ms", p.Method, p.Milliseconds))
				found = append(found, onFunction(a, fail("the reset proves nothing: "+why, seen))...)
			}
		}
	}
	return found
}

func disproof(p *isolation.Proof, a pci.Address) string {
	is := func(fp isolation.Fingerprint) bool { return fp.Address == a }
	before, after := slices.IndexFunc(p.Before, is), slices.IndexFunc(p.After, is)
	if before < 0 || after < 0 {
		return fmt.Sprintf("it has no fingerprints of %s", a)
	}
	return isolation.Compare(p.Before[before], p.After[after])
}

// quarantineHolds looks at functions that a failed reset has left.
func quarantineHolds(n *facts.Node) []finding.Finding {
	return judgeRecords(n, "which resets failed", func(rec *journal.Record) []finding.Finding {
		if rec.State != journal.Quarantined {
			return nil
		}
		var found []finding.Finding
		for _, a := range rec.Plan.Reachable() {
			if why, seen := inUse(n, rec, a); why != "" {
				f := fail(fmt.Sprintf("the reset of %s failed (%s), and %s", a, orElse(rec.Reason, "nobody says why"), why), seen, recordFact(rec, string(rec.State)))
				found = append(found, onFunction(a, f)...)
			}
		}
		return found
	})
}

// inUse says how a function of a quarantine is in use all the same.
func inUse(n *facts.Node, rec *journal.Record, a pci.Address) (string, facts.Fact) {
	if offered, seen := n.IsOffered(a); offered {
		return "it is still published", seen
	}
	if claims := preparedFor(n, a); len(claims) > 0 {
		return "it is prepared for " + claimName(claims[0]), recordFact(claims[0], string(claims[0].State))
	}
	if held := n.HoldersOf(a); len(held) > 0 {
		return "it is held by " + held[0].Process.String(), held[0].Fact()
	}
	f, ok := n.Snapshot.Function(a)
	if ok && n.IsThisBoot(rec) && f.Driver != "" && !device.IsVFIO(f.Driver) {
		return "the node uses it with " + f.Driver, facts.Fact{Path: "/sys/bus/pci/devices/" + a.String() + "/driver", Value: f.Driver, How: "link"}
	}
	return "", facts.Fact{}
}

func functionsAnswer(n *facts.Node) []finding.Finding {
	said := each(n, func(f *device.Function) []finding.Finding {
		if !f.ConfigDead {
			return nil
		}
		found := fail(f.Address.String()+" does not answer", facts.Fact{Path: "/sys/bus/pci/devices/" + f.Address.String() + "/config", Value: "all ones", How: "config"})
		return advised(found, n.Verdict(f).Reasons, isolation.Dead)
	})
	return showing(said, assignable(n), func(f *device.Function) []facts.Fact {
		return []facts.Fact{{Path: "/sys/bus/pci/devices/" + f.Address.String() + "/config", Value: fmt.Sprintf("%04x:%04x", uint16(f.Vendor), uint16(f.Device)), How: "config"}}
	})
}

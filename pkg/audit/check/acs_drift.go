package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// driftChecks returns the checks of what changed since the boot.
func driftChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "ACS-017", Title: "ACS is as it was after the boot", Severity: isolation.High, Cheap: true,
			Why:     "the kernel decided over IOMMU groups at boot and does not look again: who clears ACS later leaves groups that promise what no port keeps",
			Fix:     "write the old value back, and find the script that cleared it (recipes for GPUDirect do)",
			Verify:  "cat /run/kata-vfio/acs.json; lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'",
			Sources: []string{"Linux: drivers/pci/pci.c (pci_enable_acs, which runs when a device is found)"},
		}, Judge: acsDrift},
	}
}

// acsDrift holds the control words against those of the baseline. Functions that
// came later are not in it.
func acsDrift(n *facts.Node) []finding.Finding {
	baseline, kept := n.Baseline()
	if baseline == nil {
		return noBaseline(n, kept)
	}
	var found []finding.Finding
	compared := 0
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		was := baseline.Functions[f.Address].ACS
		acs := f.Capabilities.ACS
		switch {
		case was == nil:
			continue
		case acs == nil && f.Capabilities.Truncated:
			found = append(found, about(f, unknown("the ACS control of "+f.Address.String(), notReadable(f)))...)
			continue
		case acs == nil: // another device in its place
			continue
		}
		compared++
		if *was != acs.Control {
			drifted := fail(driftText(f.Address, *was, acs.Control), acsRegisters(f), kept)
			drifted[0].Remediation = fmt.Sprintf("`%s`, and find what changed it", isolation.SetACS(f.Address, *was))
			drifted[0].Devices = belowPort(n, f.Address)
			found = append(found, about(f, drifted)...)
		}
	}
	if len(found) == 0 {
		return pass(count(compared, "ACS control register"), kept)
	}
	return found
}

// noBaseline says why there is nothing to compare with: where the plugin runs
// there must be.
func noBaseline(n *facts.Node, kept facts.Fact) []finding.Finding {
	if kept.Status != facts.Absent {
		return unknown("how ACS was after the boot", kept)
	}
	if journal := n.Exists("var/lib/kata-vfio/journal"); !journal.OK() {
		return notApplicable("the plugin, which keeps how it was, does not run here", kept)
	}
	return unknown("how ACS was after this boot", kept)
}

func driftText(a pci.Address, was, is uint16) string {
	var words []string
	if off := was &^ is; off != 0 {
		words = append(words, orElse(isolation.ACSNames(off), "a reserved bit")+" was switched off")
	}
	if on := is &^ was; on != 0 {
		words = append(words, orElse(isolation.ACSNames(on), "a reserved bit")+" was switched on")
	}
	return fmt.Sprintf("ACS control of %s is 0x%04x and was 0x%04x: %s", a, is, was, strings.Join(words, ", "))
}

// belowPort returns the functions below a port that are or can be given away.
func belowPort(n *facts.Node, port pci.Address) []pci.Address {
	var found []pci.Address
	for _, f := range assignable(n) {
		if slices.Contains(f.Upstream, port) {
			found = append(found, f.Address)
		}
	}
	return found
}

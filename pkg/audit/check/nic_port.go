package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// nicPortChecks are about what the VFs of one port have in common.
func nicPortChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "NIC-005", Title: "Tenants on one card meet in no VLAN of its own switch", Severity: isolation.Medium,
			Why: "in legacy mode the card passes frames between VFs of one VLAN by itself: no filter of the node or of the network sees them",
			Fix: "give each tenant a VLAN of its own, or set the card to switchdev mode (`devlink dev eswitch set pci/<PF> mode switchdev`) with rules " +
				"on the VFs' representors",
			Verify:  "devlink dev eswitch show pci/<PF>; " + showVFs,
			Sources: []string{"Linux: Documentation/networking/devlink/devlink-eswitch-attr.rst", "Linux: Documentation/networking/switchdev.rst"},
		}, Judge: noSharedVLAN},
		{Rule: finding.Rule{
			ID: "NIC-010", Title: "No VF can hold up its port by pause frames", Severity: isolation.Medium,
			Why: "a VM sends pause frames through its VF: a switch that obeys them sends nothing to the whole port, and all other tenants of the card wait " +
				"(spoof check and VLANs don't stop them)",
			Fix: "`ethtool -A <PF's interface> autoneg off rx off tx off`, and flow control off at the switch's port; where RDMA needs it, priority flow control " +
				"with a watchdog at the switch",
			Verify:  "ethtool -a <PF's interface>; dcb pfc show dev <PF's interface>",
			Sources: []string{"Smolyar, Ben-Yehuda, Tsafrir: Securing Self-Virtualizing Ethernet Devices, USENIX Security 2015", "ethtool(8): --show-pause"},
		}, Judge: noPause},
	}
}

// noSharedVLAN looks at the VFs that claims hold, card by card.
func noSharedVLAN(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var seen []facts.Fact
	pfs, _ := givingPFs(n)
	asked := 0
	for _, pf := range pfs {
		if pf.Class.Sub() == pci.ClassInfiniBand || pf.Class.Base() != pci.BaseNetwork || len(n.TenantsOf(pf.PF.VFs...)) < 2 {
			continue
		}
		asked++
		uplink, fact := n.Uplink(pf.Address)
		seen = append(seen, fact)
		switch {
		case uplink == nil:
			found = append(found, ofPF(pf, pf.PF.VFs, unknown("in which VLANs its tenants are", fact))...)
		case !uplink.Switchdev():
			found = append(found, sharedVLANs(n, pf)...)
		}
	}
	return orPassWith(found, asked, "PF", "no PF has VFs of several tenants", seen)
}

// sharedVLANs says of each VLAN of a PF which tenants are in it, where there are
// several.
func sharedVLANs(n *facts.Node, pf *device.Function) []finding.Finding {
	var found []finding.Finding
	members := map[int][]pci.Address{}
	var ids []int
	for _, a := range pf.PF.VFs {
		f, ok := n.Snapshot.Function(a)
		if !ok || f.VF == nil || len(n.TenanciesOf(a)) == 0 {
			continue
		}
		settings, fact := n.VFSettings(f)
		if settings == nil || settings.VLAN == nil {
			return ofPF(pf, pf.PF.VFs, say(finding.Unknown, fmt.Sprintf("in which VLANs the tenants of PF %s are can't be told: it does not report VLANs", pf.Address), []facts.Fact{fact}))
		}
		if members[settings.VLAN.ID] == nil {
			ids = append(ids, settings.VLAN.ID)
		}
		members[settings.VLAN.ID] = append(members[settings.VLAN.ID], a)
	}
	for _, id := range ids {
		tenants := n.TenantsOf(members[id]...)
		if len(tenants) < 2 {
			continue
		}
		place := fmt.Sprintf("VLAN %d", id)
		if id == 0 {
			place = "no VLAN"
		}
		_, fact := n.Uplink(pf.Address)
		said := fail(fmt.Sprintf("VFs of %s are in %s of PF %s, whose eswitch is in legacy mode", strings.Join(tenants, " and "), place, pf.Address), fact)
		for _, a := range members[id] {
			said[0].Evidence = append(said[0].Evidence, finding.Evidence{Path: fact.Path + " " + a.String(), Value: place, How: "netlink"})
		}
		found = append(found, ofPF(pf, members[id], said)...)
	}
	return found
}

// noPause asks the ports of PFs whose VFs are given away.
func noPause(n *facts.Node) []finding.Finding {
	var found []finding.Finding
	var seen []facts.Fact
	pfs, given := givingPFs(n)
	asked := 0
	for _, pf := range pfs {
		if pf.Class.Base() != pci.BaseNetwork || pf.Class.Sub() == pci.ClassInfiniBand {
			continue
		}
		asked++
		uplink, fact := n.Uplink(pf.Address)
		fact.Value = ""
		var said []finding.Finding
		switch {
		case uplink == nil:
			said = unknown("whether its port obeys pause frames", fact)
		case uplink.Pause == nil:
			fact.Status, fact.Err = facts.Broken, orElse(uplink.PauseError, "its driver does not report pause parameters, or the copy is older than the question")
			said = unknown("whether its port obeys pause frames", fact)
		default:
			fact.Value = fmt.Sprintf("pause frames: receive %t, send %t", uplink.Pause.Receive, uplink.Pause.Send)
			seen = append(seen, fact)
			if !uplink.Pause.Receive && !uplink.Pause.Send {
				continue
			}
			said = fail(fmt.Sprintf("the port of PF %s takes part in flow control by pause frames (receive %t, send %t), and %s of it are given away",
				pf.Address, uplink.Pause.Receive, uplink.Pause.Send, count(len(given[pf.Address]), "VF")), fact)
		}
		found = append(found, ofPF(pf, given[pf.Address], said)...)
	}
	return orPassWith(found, asked, "PF", "no VF of an Ethernet card is given away", seen)
}

// ofPF makes findings those of a PF, with the VFs in reach.
func ofPF(pf *device.Function, vfs []pci.Address, found []finding.Finding) []finding.Finding {
	return about(pf, concerning(slices.Clone(vfs), found))
}

// orPassWith returns what was found, or a pass that shows what was seen of the things
// that were asked.
func orPassWith(found []finding.Finding, asked int, what, none string, seen []facts.Fact) []finding.Finding {
	switch {
	case asked == 0:
		return notApplicable(none)
	case len(found) > 0:
		return found
	}
	return showing(pass(count(asked, what)), seen, one(itself))
}

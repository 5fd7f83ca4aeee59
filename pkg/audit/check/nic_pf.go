package check

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// vfsOf returns the PF's VFs.
func vfsOf(n *facts.Node, pf pci.Address) []pci.Address {
	if f, ok := n.Snapshot.Function(pf); ok && f.PF != nil {
		return f.PF.VFs
	}
	return nil
}

// givingPFs returns the PFs with assignable VFs, and those VFs.
func givingPFs(n *facts.Node) (pfs []*device.Function, given map[pci.Address][]pci.Address) {
	given = map[pci.Address][]pci.Address{}
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if f.PF == nil {
			continue
		}
		for _, vf := range f.PF.VFs {
			if n.IsAvailable(vf) {
				given[f.Address] = append(given[f.Address], vf)
			}
		}
		if given[f.Address] != nil {
			pfs = append(pfs, f)
		}
	}
	return pfs, given
}

func hostHasPF(n *facts.Node) Answer {
	pfs, given := givingPFs(n)
	var found Answer
	for _, pf := range pfs {
		driver := facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/driver", pf.Address), Value: pf.Driver, How: "link"}
		var said Answer
		switch held := n.TenanciesOf(pf.Address); {
		case len(held) > 0:
			said = fail(fmt.Sprintf("claim %[2]s has PF %[1]s, which has %[3]s for tenants", pf.Address, held[0].Claim(), count(len(given[pf.Address]), "VF")), driver)
		case device.IsVFIO(pf.Driver):
			said = fail(fmt.Sprintf("PF %s is on %s: whoever opens it controls its %s", pf.Address, pf.Driver, count(len(given[pf.Address]), "VF")), driver)
		case pf.Driver == "":
			said = fail(fmt.Sprintf("PF %s has no driver that enforces the settings of its %s", pf.Address, count(len(given[pf.Address]), "VF")), driver)
		default:
			continue
		}
		found = append(found, said.on(pf).reaching(given[pf.Address]...)...)
	}
	return conclude(found, pfs, "PF", "no VF is assignable", one(driverFact))
}

// noWholeNIC speaks of cards that a tenant has, or that wait for one on a VFIO driver.
func noWholeNIC(n *facts.Node) Answer {
	var found Answer
	var cards []*device.Function
	for _, f := range n.Functions(device.PFType) {
		if f.Class.Base() != pci.BaseNetwork {
			continue
		}
		cards = append(cards, f)
		switch held := n.TenanciesOf(f.Address); {
		case len(held) > 0:
			found = append(found, fail(fmt.Sprintf("claim %s has the whole card %s", held[0].Claim(), f.Address), recordOf(&held[0])).on(f)...)
		case device.IsVFIO(f.Driver):
			found = append(found, fail(fmt.Sprintf("the whole card %s is on %s and assignable", f.Address, f.Driver), driverFact(f)).on(f)...)
		}
	}
	return conclude(found, cards, "card", "the node has no network card", one(driverFact))
}

func noAutoprobe(n *facts.Node) Answer {
	pfs, given := givingPFs(n)
	var found Answer
	for _, pf := range pfs {
		if !pf.PF.Autoprobe {
			continue
		}
		seen := n.Read(fmt.Sprintf("sys/bus/pci/devices/%s/sriov_drivers_autoprobe", pf.Address))
		found = append(found, fail(fmt.Sprintf("host drivers probe new VFs of PF %s that have no override", pf.Address), seen).
			reaching(given[pf.Address]...).fix(fmt.Sprintf("`echo 0 > %s`", seen.Path)).on(pf)...)
	}
	return conclude(found, pfs, "PF", "no VF is assignable", attributeFile(n, "sriov_drivers_autoprobe"))
}

// filteredElsewhere reminds of what no file says: where VFs' traffic is filtered.
func filteredElsewhere(n *facts.Node) Answer {
	var vfs []pci.Address
	for _, f := range networkVFs(n) {
		vfs = append(vfs, f.Address)
	}
	if len(vfs) == 0 {
		return notApplicable("no network VF is assignable")
	}
	return Answer{{
		State: finding.Manual, Devices: vfs,
		Text: fmt.Sprintf("no NetworkPolicy applies to %s; check what filters their traffic", count(len(vfs), "VF")),
	}}
}

// noInterface leaves out VFs that wait for their VM on their own driver, which is
// how Kata takes a network interface.
func noInterface(n *facts.Node) Answer {
	var found Answer
	var held []*device.Function
	for _, f := range networkVFs(n) {
		for _, t := range n.TenanciesOf(f.Address) {
			if t.Record.State != journal.Prepared || isEndpoint(t.Record, f.Address) {
				continue
			}
			held = append(held, f)
			if len(f.Children.Net) == 0 {
				continue
			}
			names := strings.Join(f.Children.Net, ", ")
			seen := facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/net", f.Address), Value: names, How: "list"}
			found = append(found, fail(fmt.Sprintf("VF %s of claim %s is the host interface %s (driver %s)", f.Address, t.Claim(), names, f.Driver), seen).on(f)...)
		}
	}
	return conclude(found, held, "VF", "no claim has a VF", one(driverFact))
}

// isEndpoint reports whether the claim's VM gets the function as a network interface.
func isEndpoint(rec *journal.Record, a pci.Address) bool {
	for i := range rec.Plan.Functions {
		if f := &rec.Plan.Functions[i]; f.Address == a {
			return f.Endpoint != nil
		}
	}
	return false
}

// nicPortChecks are about what the VFs of one port have in common.
func nicPortChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "NIC-005", Title: "Ensure that tenants share no VLAN of a card's embedded switch", Severity: isolation.Medium,
			Why:     "In legacy mode, the card forwards frames between VFs of one VLAN past all filters.",
			Fix:     "give each tenant its own VLAN, or use switchdev mode (`devlink dev eswitch set pci/<PF> mode switchdev`) with rules on the VFs' representors",
			Verify:  "devlink dev eswitch show pci/<PF>; " + showVFs,
			Sources: []string{"Linux: Documentation/networking/devlink/devlink-eswitch-attr.rst", "Linux: Documentation/networking/switchdev.rst"},
		}, Judge: noSharedVLAN},
		{Rule: finding.Rule{
			ID: "NIC-010", Title: "Ensure that VFs can't stop their port with pause frames", Severity: isolation.Medium,
			Why:     "A switch that obeys a VM's pause frames stops the whole port. Spoof checking and VLANs don't prevent it.",
			Fix:     "`ethtool -A <PF's interface> autoneg off rx off tx off`, and disable flow control at the switch port; for RDMA, use priority flow control with a watchdog at the switch",
			Verify:  "ethtool -a <PF's interface>; dcb pfc show dev <PF's interface>",
			Sources: []string{"Smolyar, Ben-Yehuda, Tsafrir: Securing Self-Virtualizing Ethernet Devices, USENIX Security 2015", "ethtool(8): --show-pause"},
		}, Judge: noPause},
	}
}

// noSharedVLAN looks at the VFs that claims hold, card by card.
func noSharedVLAN(n *facts.Node) Answer {
	var found Answer
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
			found = append(found, unknown("the VLANs of its tenants", fact).on(pf).reaching(pf.PF.VFs...)...)
		case !uplink.Switchdev():
			found = append(found, sharedVLANs(n, pf)...)
		}
	}
	return orPassWith(found, asked, "PF", "no tenants share a PF", seen)
}

// sharedVLANs says of each VLAN of a PF which tenants are in it, where there are
// several.
func sharedVLANs(n *facts.Node, pf *device.Function) Answer {
	var found Answer
	members := map[int][]pci.Address{}
	var ids []int
	for _, a := range pf.PF.VFs {
		f, ok := n.Snapshot.Function(a)
		if !ok || f.VF == nil || len(n.TenanciesOf(a)) == 0 {
			continue
		}
		settings, fact := n.VFSettings(f)
		if settings == nil || settings.VLAN == nil {
			return say(finding.Unknown, fmt.Sprintf("can't tell the VLANs of tenants: PF %s does not report them", pf.Address), []facts.Fact{fact}).on(pf).reaching(pf.PF.VFs...)
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
		said := fail(fmt.Sprintf("VFs of %s share %s on PF %s, whose eswitch is in legacy mode", strings.Join(tenants, " and "), place, pf.Address), fact)
		for _, a := range members[id] {
			said[0].Evidence = append(said[0].Evidence, finding.Evidence{Path: fact.Path + " " + a.String(), Value: place, How: "netlink"})
		}
		found = append(found, said.on(pf).reaching(members[id]...)...)
	}
	return found
}

// noPause asks the ports of PFs with assignable VFs.
func noPause(n *facts.Node) Answer {
	var found Answer
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
		var said Answer
		switch {
		case uplink == nil:
			said = unknown("whether its port uses pause frames", fact)
		case uplink.Pause == nil:
			fact.Status, fact.Err = facts.Broken, orElse(uplink.PauseError, "its driver does not report pause parameters, or the archive is from an older version")
			said = unknown("whether its port uses pause frames", fact)
		default:
			fact.Value = fmt.Sprintf("pause frames: receive %t, send %t", uplink.Pause.Receive, uplink.Pause.Send)
			seen = append(seen, fact)
			if !uplink.Pause.Receive && !uplink.Pause.Send {
				continue
			}
			said = fail(fmt.Sprintf("the port of PF %s uses pause frames (receive %t, send %t) and has %s for tenants",
				pf.Address, uplink.Pause.Receive, uplink.Pause.Send, count(len(given[pf.Address]), "VF")), fact)
		}
		found = append(found, said.on(pf).reaching(given[pf.Address]...)...)
	}
	return orPassWith(found, asked, "PF", "no Ethernet VF is assignable", seen)
}

// orPassWith returns what was found, or a pass that shows what was seen of the things
// that were asked.
func orPassWith(found Answer, asked int, what, none string, seen []facts.Fact) Answer {
	switch {
	case asked == 0:
		return notApplicable(none)
	case len(found) > 0:
		return found
	}
	return showing(pass(count(asked, what)), seen, one(itself))
}

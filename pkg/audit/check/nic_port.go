package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ownerChecks are about the owners of PFs.
func ownerChecks() []Check {
	return []Check{
		{ID: "NIC-006", Judge: hostHasPF},
		{ID: "NIC-007", Judge: noWholeNIC},
		{ID: "NIC-008", Judge: noAutoprobe},
	}
}

// listVFs returns the PF's VFs.
func listVFs(n *facts.Node, pf pci.Address) []pci.Address {
	if f, ok := n.Snapshot.Function(pf); ok && f.PF != nil {
		return f.PF.VFs
	}
	return nil
}

// givingPFs returns the PFs with assignable VFs.
func givingPFs(n *facts.Node) []*device.Function {
	return functionsWhere(n, func(f *device.Function) bool { return len(givenBy(n, f)) > 0 })
}

// givenBy returns the assignable VFs of a PF.
func givenBy(n *facts.Node, f *device.Function) []pci.Address {
	if f.PF == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.PF.VFs), func(vf pci.Address) bool { return !n.IsAvailable(vf) })
}

// eachPF judges the PFs with assignable VFs. Findings reach those VFs.
func eachPF(n *facts.Node, read func(*device.Function) []facts.Fact, judge func(pf *device.Function, vfs string) Answer) Answer {
	pfs := givingPFs(n)
	return conclude(over(pfs, func(pf *device.Function) Answer {
		vfs := givenBy(n, pf)
		return judge(pf, count(len(vfs), "VF")).on(pf).reaching(vfs...)
	}), pfs, "PF", "no VF is assignable", read)
}

func hostHasPF(n *facts.Node) Answer {
	return eachPF(n, one(driverFact), func(pf *device.Function, vfs string) Answer {
		driver := link(pf.Address, "driver", pf.Driver)
		switch held := n.TenanciesAt(pf.Address); {
		case len(held) > 0:
			return fail(fmt.Sprintf("claim %s has PF %s, which has %s for tenants", held[0].Claim(), pf.Address, vfs), driver)
		case onVFIODriver(pf):
			return fail(fmt.Sprintf("PF %s is on %s: whoever opens it controls its %s", pf.Address, pf.Driver, vfs), driver)
		case pf.Driver == "":
			return fail(fmt.Sprintf("PF %s has no driver that enforces the settings of its %s", pf.Address, vfs), driver)
		}
		return nil
	})
}

// noWholeNIC checks the cards that a tenant has, or that are on a VFIO driver for a future tenant.
func noWholeNIC(n *facts.Node) Answer {
	cards := slices.DeleteFunc(n.Functions(device.PFType), func(f *device.Function) bool { return f.Class.Base() != pci.BaseNetwork })
	found := over(cards, func(f *device.Function) Answer {
		switch held := n.TenanciesAt(f.Address); {
		case len(held) > 0:
			return fail(fmt.Sprintf("claim %s has the whole card %s", held[0].Claim(), f.Address), stateFact(held[0].Record)).on(f)
		case onVFIODriver(f):
			return fail(fmt.Sprintf("the whole card %s is on %s and assignable", f.Address, f.Driver), driverFact(f)).on(f)
		}
		return nil
	})
	return conclude(found, cards, "card", "the node has no network card", one(driverFact))
}

func noAutoprobe(n *facts.Node) Answer {
	autoprobe := attributeFile(n, "sriov_drivers_autoprobe")
	return eachPF(n, autoprobe, func(pf *device.Function, _ string) Answer {
		if !pf.PF.Autoprobe {
			return nil
		}
		seen := autoprobe(pf)
		return fail(fmt.Sprintf("host drivers probe new VFs of PF %s that have no override", pf.Address), seen...).fix(fmt.Sprintf("`echo 0 > %s`", seen[0].Path))
	})
}

// noInterface leaves out VFs that wait for their VM on their own driver, because Kata
// takes a network interface from there.
func noInterface(n *facts.Node) Answer {
	var held []*device.Function
	found := over(networkVFs(n), func(f *device.Function) Answer {
		return over(n.TenanciesAt(f.Address), func(t facts.Tenancy) Answer {
			if fn, ok := t.Record.Plan.Function(f.Address); !isPrepared(n, t.Record) || ok && fn.Endpoint != nil {
				return nil
			}
			held = append(held, f)
			if len(f.Children.Net) == 0 {
				return nil
			}
			names := strings.Join(f.Children.Net, ", ")
			seen := facts.Fact{Path: fmt.Sprintf("/sys/bus/pci/devices/%s/net", f.Address), Value: names, How: "list"}
			return fail(fmt.Sprintf("VF %s of claim %s is the host interface %s (driver %s)", f.Address, t.Claim(), names, f.Driver), seen).on(f)
		})
	})
	return conclude(found, held, "VF", "no claim has a VF", one(driverFact))
}

// noSharedVLAN looks at the VFs that claims hold, card by card.
func noSharedVLAN(n *facts.Node) Answer {
	var seen []facts.Fact
	shared := slices.DeleteFunc(givingPFs(n), func(pf *device.Function) bool { return !isEthernet(pf) || len(n.Owners(pf.PF.VFs...)) < 2 })
	found := over(shared, func(pf *device.Function) Answer {
		uplink, fact := n.Uplink(pf.Address)
		seen = append(seen, fact)
		switch {
		case uplink == nil:
			return unknown("the VLANs of its tenants", fact).on(pf).reaching(pf.PF.VFs...)
		// In switchdev mode, rules on representors decide which VFs can reach each other. NIC-003 leaves these rules to a person.
		case !uplink.Switchdev():
			return sharedVLANs(n, pf)
		}
		return nil
	})
	return orPassWith(found, len(shared), "PF", "no tenants share a PF", seen)
}

// isEthernet reports whether a PF is one of a card for Ethernet.
func isEthernet(pf *device.Function) bool {
	return pf.Class.Base() == pci.BaseNetwork && pf.Class.Sub() != pci.ClassInfiniBand
}

// sharedVLANs names the tenants of each VLAN of a PF with several tenants. It leaves out VFs that are not prepared, which have no VLAN.
func sharedVLANs(n *facts.Node, pf *device.Function) Answer {
	members := map[int][]pci.Address{}
	var ids []int
	for _, f := range functionsAt(n, pf.PF.VFs) {
		if f.VF == nil || len(preparedFor(n, f.Address)) == 0 {
			continue
		}
		settings, fact := n.VFSettings(f)
		if settings == nil || settings.VLAN == nil {
			return say(finding.Unknown, fmt.Sprintf("can't tell the VLANs of tenants: PF %s does not report them", pf.Address), []facts.Fact{fact}).on(pf).reaching(pf.PF.VFs...)
		}
		id := settings.VLAN.ID
		if members[id] == nil {
			ids = append(ids, id)
		}
		members[id] = append(members[id], f.Address)
	}
	_, fact := n.Uplink(pf.Address)
	return over(ids, func(id int) Answer {
		tenants := n.Owners(members[id]...)
		if len(tenants) < 2 {
			return nil
		}
		place := fmt.Sprintf("VLAN %d", id)
		if id == 0 {
			place = "no VLAN"
		}
		said := fail(fmt.Sprintf("VFs of %s share %s on PF %s, whose eswitch is in legacy mode", strings.Join(tenants, " and "), place, pf.Address), fact)
		for _, a := range members[id] {
			said.seen(facts.Fact{Path: fact.Path + " " + a.String(), Value: place, How: "netlink"})
		}
		return said.on(pf).reaching(members[id]...)
	})
}

// noPause checks the flow control of the ports of PFs with assignable VFs.
func noPause(n *facts.Node) Answer {
	var seen []facts.Fact
	pfs := slices.DeleteFunc(givingPFs(n), func(pf *device.Function) bool { return !isEthernet(pf) })
	found := over(pfs, func(pf *device.Function) Answer {
		vfs := givenBy(n, pf)
		uplink, fact := n.Uplink(pf.Address)
		fact.Value = ""
		switch {
		case uplink == nil:
			return unknown("whether its port uses pause frames", fact).on(pf).reaching(vfs...)
		case uplink.Pause == nil:
			fact.Status, fact.Err = facts.Broken, cmp.Or(uplink.PauseError, "its driver does not report pause parameters, or the archive is from an older version")
			return unknown("whether its port uses pause frames", fact).on(pf).reaching(vfs...)
		}
		frames := fmt.Sprintf("receive %t, send %t", uplink.Pause.Receive, uplink.Pause.Send)
		fact.Value = "pause frames: " + frames
		seen = append(seen, fact)
		if !uplink.Pause.Receive && !uplink.Pause.Send {
			return nil
		}
		return fail(fmt.Sprintf("the port of PF %s uses pause frames (%s) and has %s for tenants", pf.Address, frames, count(len(vfs), "VF")), fact).on(pf).reaching(vfs...)
	})
	return orPassWith(found, len(pfs), "PF", "no Ethernet VF is assignable", seen)
}

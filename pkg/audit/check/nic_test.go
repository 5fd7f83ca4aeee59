package check_test

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// imposed plants another setting of the first VF, which tenant t2 has.
func imposed(rule, what string, change func(*device.VFSettings)) fault {
	return fault{rule: rule, about: what, board: board.Server, device: "nic0/vf0", plant: func(t *board.Tree) {
		t.ChangeVF(t.Devices["nic0"], 0, change)
	}}
}

// untold plants a setting that the PF's driver does not report.
func untold(rule string, change func(*device.VFSettings)) fault {
	f := imposed(rule, "not reported", change)
	f.device, f.state = "", finding.Unknown
	return f
}

func nicFaults() []fault {
	return []fault{
		imposed("NIC-001", "off", func(s *device.VFSettings) { s.SpoofCheck = new(false) }),
		untold("NIC-001", func(s *device.VFSettings) { s.SpoofCheck = nil }),
		{rule: "NIC-001", about: "switchdev", board: board.Server, state: finding.Manual, plant: switchdev},
		{rule: "NIC-001", about: "no interface to ask", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.ChangePF(t.Devices["nic0"], func(u *facts.Uplink) { u.Link, u.Error = nil, "it has none" })
		}},
		{rule: "NIC-001", about: "nothing of the network in the copy", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete(facts.LinksFile)
		}},
		{rule: "NIC-001", about: "a copy that is no JSON", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(facts.LinksFile, `{"pfs": [{"pf": "no address"`)
		}},
		{rule: "NIC-001", about: "fewer VFs than there are", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.ChangePF(t.Devices["nic0"], func(u *facts.Uplink) { u.Link.VFs = nil })
		}},
		imposed("NIC-002", "on", func(s *device.VFSettings) { s.Trust = new(true) }),
		untold("NIC-002", func(s *device.VFSettings) { s.Trust = nil }),
		imposed("NIC-003", "none", func(s *device.VFSettings) { s.VLAN = &device.VLAN{Protocol: "802.1Q"} }),
		{rule: "NIC-003", about: "switchdev", board: board.Server, state: finding.Manual, plant: switchdev},
		imposed("NIC-004", "none", func(s *device.VFSettings) { s.MAC = "00:00:00:00:00:00" }),
		{rule: "NIC-004", about: "twice", board: board.Server, device: "nic0/vf1", plant: func(t *board.Tree) {
			t.Give("t3", "other", t.Devices["nic0/vf1"])
			t.ChangePF(t.Devices["nic0"], func(u *facts.Uplink) { u.Link.VFs[1].Settings.MAC = u.Link.VFs[0].Settings.MAC })
		}},
		{rule: "NIC-006", about: "a tenant has the PF", board: board.Server, device: "nic0", plant: func(t *board.Tree) {
			t.Give("t3", "greedy", t.Devices["nic0"])
		}},
		{rule: "NIC-007", about: "a tenant has the PF", board: board.Server, device: "nic0", plant: func(t *board.Tree) {
			t.Give("t3", "greedy", t.Devices["nic0"])
		}},
		{rule: "NIC-008", about: "on", board: board.Server, device: "nic0", plant: func(t *board.Tree) {
			t.Put("sys/bus/pci/devices/"+t.Devices["nic0"].String()+"/sriov_drivers_autoprobe", "1\n")
		}},
		{rule: "NIC-009", about: "no bound beside another tenant", board: board.Server, device: "nic0/vf0", plant: func(t *board.Tree) {
			t.Give("t3", "other", t.Devices["nic0/vf1"])
			t.ChangeVF(t.Devices["nic0"], 0, func(s *device.VFSettings) { s.Rate = &device.TxRate{} })
		}},
		{rule: "NIC-009", about: "no bound since the reboot", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Give("t3", "other", t.Devices["nic0/vf1"])
			t.ChangeVF(t.Devices["nic0"], 1, func(s *device.VFSettings) { s.Rate = &device.TxRate{} })
			stale("t3", "other")(t)
		}},
		imposed("NIC-012", "reads the hash key", func(s *device.VFSettings) { s.RSSQuery = new(true) }),
		{rule: "NIC-012", about: "a driver without shared keys", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			for i := range t.VFs(t.Devices["nic0"]) {
				t.ChangeVF(t.Devices["nic0"], i, func(s *device.VFSettings) { s.RSSQuery = nil })
			}
		}},
		imposed("NIC-012", "a link of its own", func(s *device.VFSettings) { s.LinkState = "enable" }),
		{rule: "NIC-013", about: "no GUID", board: board.Fabric, device: "hca0/vf0", plant: func(t *board.Tree) {
			t.ChangeVF(t.Devices["hca0"], 0, func(s *device.VFSettings) { s.NodeGUID = "00:00:00:00:00:00:00:00" })
		}},
		{rule: "NIC-013", about: "a port twice", board: board.Fabric, device: "hca0/vf1", plant: func(t *board.Tree) {
			t.ChangePF(t.Devices["hca0"], func(u *facts.Uplink) { u.Link.VFs[1].Settings.PortGUID = u.Link.VFs[0].Settings.PortGUID })
		}},
		{rule: "NIC-015", about: "a VF is given", board: board.Server, state: finding.Manual, plant: func(*board.Tree) {}},
		{rule: "NIC-016", about: "an interface of the node", board: board.Server, device: "nic0/vf2", plant: func(t *board.Tree) {
			vf := t.Devices["nic0/vf2"]
			t.Give("t3", "other", vf)
			t.GiveBack(vf) // a function on VFIO has no interface
			t.Put("sys/bus/pci/devices/"+vf.String()+"/net/eth9/ifindex", "99\n")
		}},
		{rule: "NIC-016", about: "an interface of the node since the reboot", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			vf := t.Devices["nic0/vf2"]
			t.Give("t3", "other", vf)
			t.GiveBack(vf)
			t.Put("sys/bus/pci/devices/"+vf.String()+"/net/eth9/ifindex", "99\n")
			stale("t3", "other")(t)
		}},
		{rule: "NIC-018", about: "no VLAN since the reboot", board: board.Server, state: finding.NotApplicable, plant: all(noVLANs, stale("t2", "serve"))},
		{rule: "NIC-018", about: "another VLAN than the claim's", board: board.Server, device: "nic0/vf0", plant: func(t *board.Tree) {
			t.ChangeVF(t.Devices["nic0"], 0, func(s *device.VFSettings) { s.VLAN.ID = 666 })
		}},
	}
}

func switchdev(t *board.Tree) {
	t.ChangePF(t.Devices["nic0"], func(u *facts.Uplink) { u.Eswitch = link.Switchdev })
}

// sharedCard has a third tenant on the card of the second.
func sharedCard(about string, state finding.State, change func(*board.Tree)) fault {
	return fault{rule: "NIC-005", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
		t.Give("t3", "other", t.Devices["nic0/vf1"])
		change(t)
	}}
}

func sameVLAN(t *board.Tree) {
	t.ChangeVF(t.Devices["nic0"], 1, func(s *device.VFSettings) { s.VLAN.ID = 100 })
}

func noVLANs(t *board.Tree) {
	for i := range 2 {
		t.ChangeVF(t.Devices["nic0"], i, func(s *device.VFSettings) { s.VLAN.ID = 0 })
	}
}

func nicPortFaults() []fault {
	paused := func(about string, state finding.State, p *link.Pause) fault {
		return fault{rule: "NIC-010", about: about, board: board.Server, state: state, device: "nic0", plant: func(t *board.Tree) {
			t.ChangePF(t.Devices["nic0"], func(u *facts.Uplink) { u.Pause = p })
		}}
	}
	inSharedVLAN := sharedCard("one VLAN", "", sameVLAN)
	inSharedVLAN.device = "nic0"
	return []fault{
		inSharedVLAN,
		sharedCard("none for both", "", noVLANs),
		sharedCard("none for both since the reboot", finding.Pass, all(noVLANs, stale("t2", "serve"), stale("t3", "other"))),
		sharedCard("a VLAN for each", finding.Pass, func(*board.Tree) {}),
		sharedCard("one VLAN in switchdev mode", finding.Pass, func(t *board.Tree) { sameVLAN(t); switchdev(t) }),
		sharedCard("not reported", finding.Unknown, func(t *board.Tree) {
			t.ChangeVF(t.Devices["nic0"], 1, func(s *device.VFSettings) { s.VLAN = nil })
		}),
		sharedCard("nothing of the network in the copy", finding.Unknown, func(t *board.Tree) { t.Delete(facts.LinksFile) }),
		{rule: "NIC-005", about: "one tenant twice", board: board.Server, state: finding.NotApplicable, plant: func(t *board.Tree) {
			t.Give("t2", "other", t.Devices["nic0/vf1"])
			sameVLAN(t)
		}},
		paused("received", "", &link.Pause{Receive: true}),
		paused("sent", "", &link.Pause{Send: true}),
		paused("not reported", finding.Unknown, nil),
		{rule: "NIC-010", about: "no interface to ask", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.ChangePF(t.Devices["nic0"], func(u *facts.Uplink) { u.Link, u.Error = nil, "it has none" })
		}},
	}
}

package check_test

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
)

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
		sharedCard("none for both", "", func(t *board.Tree) {
			for i := range 2 {
				t.ChangeVF(t.Devices["nic0"], i, func(s *device.VFSettings) { s.VLAN.ID = 0 })
			}
		}),
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

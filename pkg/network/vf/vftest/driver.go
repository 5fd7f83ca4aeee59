package vftest

import (
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
)

// Driver is what a PF's driver can do.
type Driver struct {
	// Refuses are the errors of settings that it does not have; it reports most
	// of them all the same.
	Refuses map[device.VFSetting]error
	// Silent are settings that it does not report.
	Silent []device.VFSetting
	// Deaf are settings that it takes and does not make.
	Deaf []device.VFSetting
	// MinRate and QinQ are whether it has minimum rates and 802.1ad.
	MinRate, QinQ bool
	// RatesByLink is whether it takes no rates without a link.
	RatesByLink bool
	// RSSQuery is whether it lets a VF read its hash key; the others report nothing
	// of that.
	RSSQuery bool
	// InfiniBand makes the PFs ports of InfiniBand, which have GUIDs and a link
	// state and nothing else.
	InfiniBand bool
	// Eswitch is whether it has modes, and PortMAC whether VFs get their address by
	// their ports in switchdev mode.
	Eswitch, PortMAC bool
	// Hides is how many readings leave the last VF out at first, as ice does while
	// it resets the VF.
	Hides int
	// Busy is how many writes it refuses at first, while it resets the VF.
	Busy int
}

// Igb is the driver of the lab's NICs, as seen there on Linux 6.12.
func Igb() Driver {
	return Driver{Refuses: map[device.VFSetting]error{device.VFLinkState: unix.EOPNOTSUPP}, RatesByLink: true}
}

// Complete is a driver that has all settings of Ethernet.
func Complete() Driver { return Driver{MinRate: true, QinQ: true, RSSQuery: true} }

// InfiniBand is the driver of a ConnectX whose port is InfiniBand.
func InfiniBand() Driver { return Driver{InfiniBand: true} }

// Eswitch is a driver with switchdev mode, as ConnectX and E810 have it.
func Eswitch() Driver { return Driver{MinRate: true, Eswitch: true, PortMAC: true} }

// found is what the driver begins a VF with.
func (d *Driver) found() device.VFSettings {
	if d.InfiniBand {
		return device.VFSettings{LinkState: "disable", NodeGUID: vf.NoGUID, PortGUID: vf.NoGUID}
	}
	s := device.VFSettings{
		MAC: "00:00:00:00:00:00", VLAN: &device.VLAN{Protocol: "802.1Q"}, Rate: &device.TxRate{}, LinkState: "auto",
		SpoofCheck: new(true), Trust: new(false),
	}
	if d.RSSQuery {
		s.RSSQuery = new(false)
	}
	return s
}

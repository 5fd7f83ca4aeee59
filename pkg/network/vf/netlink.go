package vf

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
)

// settingAttr returns the attribute that sets one setting of a VF.
func settingAttr(index int, s device.VFSetting, to *device.VFSettings) (*nl.RtAttr, error) {
	vf := uint32(index)
	switch s {
	case device.VFMAC:
		return macAttr(vf, to.MAC)
	case device.VFVLAN:
		return vlanAttr(vf, to.VLAN)
	case device.VFTxRate:
		// In Mbit/s. IFLA_VF_TX_RATE, which is older, has the maximum only.
		return nl.NewRtAttr(nl.IFLA_VF_RATE, pack(vf, uint32(to.Rate.Min), uint32(to.Rate.Max))), nil
	case device.VFLinkState:
		state := slices.Index(link.States(), to.LinkState)
		if state < 0 {
			return nil, fmt.Errorf("no link state %q", to.LinkState)
		}
		return nl.NewRtAttr(nl.IFLA_VF_LINK_STATE, pack(vf, uint32(state))), nil
	case device.VFSpoofCheck:
		return nl.NewRtAttr(nl.IFLA_VF_SPOOFCHK, pack(vf, number(*to.SpoofCheck))), nil
	case device.VFRSSQuery:
		return nl.NewRtAttr(nl.IFLA_VF_RSS_QUERY_EN, pack(vf, number(*to.RSSQuery))), nil
	case device.VFTrust:
		return nl.NewRtAttr(nl.IFLA_VF_TRUST, pack(vf, number(*to.Trust))), nil
	case device.VFNodeGUID:
		return guidAttr(nl.IFLA_VF_IB_NODE_GUID, vf, to.NodeGUID)
	case device.VFPortGUID:
		return guidAttr(nl.IFLA_VF_IB_PORT_GUID, vf, to.PortGUID)
	}
	return nil, fmt.Errorf("no setting %q", s)
}

func macAttr(vf uint32, text string) (*nl.RtAttr, error) {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return nil, err
	}
	// struct ifla_vf_mac has 32 bytes for an address of any length (include/uapi/linux/if_link.h).
	value := append(pack(vf), mac...)
	return nl.NewRtAttr(nl.IFLA_VF_MAC, append(value, make([]byte, nl.SizeofVfMac-len(value))...)), nil
}

func vlanAttr(vf uint32, v *device.VLAN) (*nl.RtAttr, error) {
	protocol := uint16(unix.ETH_P_8021Q)
	switch v.Protocol {
	case "802.1Q":
	case "802.1ad":
		protocol = unix.ETH_P_8021AD
	default:
		return nil, fmt.Errorf("no VLAN protocol %q", v.Protocol)
	}
	// struct ifla_vf_vlan_info (include/uapi/linux/if_link.h): the protocol alone is in network byte order, and two bytes of
	// padding follow it.
	value := binary.BigEndian.AppendUint16(pack(vf, uint32(v.ID), uint32(v.QoS)), protocol)
	list := nl.NewRtAttr(nl.IFLA_VF_VLAN_LIST, nil)
	list.AddRtAttr(nl.IFLA_VF_VLAN_INFO, append(value, 0, 0))
	return list, nil
}

func guidAttr(kind int, vf uint32, text string) (*nl.RtAttr, error) {
	guid, err := net.ParseMAC(text)
	if err != nil || len(guid) != 8 {
		return nil, fmt.Errorf("%q is no GUID", text)
	}
	// On 64-bit CPUs, struct ifla_vf_guid has 4 bytes of padding before the GUID. Unlike a MAC address, the GUID is a
	// number in the CPU's byte order.
	return nl.NewRtAttr(kind, binary.NativeEndian.AppendUint64(pack(vf, 0), binary.BigEndian.Uint64(guid))), nil
}

func pack(words ...uint32) []byte {
	var data []byte
	for _, w := range words {
		data = binary.NativeEndian.AppendUint32(data, w)
	}
	return data
}

func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// Rtnetlink reads and writes by the kernel's rtnetlink. See [link.Rtnetlink] for what it needs.
type Rtnetlink struct{ *link.Rtnetlink }

// NewRtnetlink returns the interfaces of the node with that proc.
func NewRtnetlink(proc string) *Rtnetlink { return &Rtnetlink{link.NewRtnetlink(proc)} }

// Write sets one setting of a VF to its value in to. Settings are written one at a time: the kernel applies the settings
// of a request in order, and keeps the earlier ones if the driver refuses one.
func (r *Rtnetlink) Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error {
	attr, err := settingAttr(index, s, to)
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	req.AddData(link.InterfaceMessage(number))
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, nil)
	list.AddRtAttr(nl.IFLA_VF_INFO, nil).AddChild(attr)
	req.AddData(list)
	_, err = r.Do(ctx, req)
	return err
}

// modeLimit limits a change of an eswitch's mode, which rebuilds the eswitch.
const modeLimit = time.Minute

// Devlink reads and changes eswitches by the kernel's devlink. See [link.Devlink] for what it needs.
type Devlink struct{ *link.Devlink }

// NewDevlink returns the eswitches of the node with that proc.
func NewDevlink(proc string) *Devlink { return &Devlink{link.NewDevlink(proc)} }

// SetMode sets the mode. Drivers delete the existing representors. Some refuse the change while there are VFs (ice). It
// can be repeated.
func (d *Devlink) SetMode(ctx context.Context, h Handle, m Mode) error {
	number := uint16(nl.DEVLINK_ESWITCH_MODE_LEGACY)
	if m == Switchdev {
		number = nl.DEVLINK_ESWITCH_MODE_SWITCHDEV
	}
	mode := nl.NewRtAttr(nl.DEVLINK_ATTR_ESWITCH_MODE, nl.Uint16Attr(number))
	_, err := d.Do(ctx, modeLimit, link.Command{Number: nl.DEVLINK_CMD_ESWITCH_SET, Flags: unix.NLM_F_ACK, Handle: h, Attrs: []*nl.RtAttr{mode}})
	return err
}

// SetMAC sets the address of a port's VF (devlink port function set hw_addr,
// Documentation/networking/devlink/devlink-port.rst).
func (d *Devlink) SetMAC(ctx context.Context, h Handle, port uint32, mac string) error {
	address, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	function := nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FUNCTION|unix.NLA_F_NESTED, nil)
	function.AddRtAttr(nl.DEVLINK_PORT_FUNCTION_ATTR_HW_ADDR, address)
	index := nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_INDEX, binary.NativeEndian.AppendUint32(nil, port))
	_, err = d.Do(ctx, link.Limit, link.Command{Number: nl.DEVLINK_CMD_PORT_SET, Flags: unix.NLM_F_ACK, Handle: h, Attrs: []*nl.RtAttr{index, function}})
	return err
}

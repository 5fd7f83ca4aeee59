package vf

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"

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

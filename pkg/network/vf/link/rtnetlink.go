package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Rtnetlink reads from the kernel's rtnetlink, in the network namespace of the node's first process, because a pod's
// has no PFs. It needs CAP_NET_ADMIN, CAP_SYS_ADMIN, and the node's processes (hostPID).
type Rtnetlink struct {
	proc     string
	requests requests
}

// NewRtnetlink returns the interfaces of the node with that proc.
func NewRtnetlink(proc string) *Rtnetlink { return &Rtnetlink{proc, newRequests()} }

// Read returns the interface with an index, and its VFs.
func (r *Rtnetlink) Read(ctx context.Context, number int) (*Link, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	req.AddData(InterfaceMessage(number))
	// Without this filter the kernel leaves the VFs out of its answer.
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(nl.RTEXT_FILTER_VF)))
	answers, err := r.Do(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("read interface %d and its VFs: %w", number, err)
	}
	if len(answers) != 1 {
		return nil, fmt.Errorf("read interface %d and its VFs: %d answers", number, len(answers))
	}
	return ParseLink(answers[0])
}

// InterfaceMessage returns the header of a message about the interface with an index.
func InterfaceMessage(number int) *nl.IfInfomsg {
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = int32(number)
	return m
}

// Do carries out one request on a new socket, one at a time. It returns when ctx ends at the latest, and abandons a
// request that hangs in the kernel.
func (r *Rtnetlink) Do(ctx context.Context, req *nl.NetlinkRequest) ([][]byte, error) {
	return r.requests.do(ctx, Limit, func() ([][]byte, error) { return r.execute(req) })
}

func (r *Rtnetlink) execute(req *nl.NetlinkRequest) ([][]byte, error) {
	socket, err := openSocket(r.proc, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	answers, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.EAGAIN) {
		return nil, fmt.Errorf("the PF is busy with the VF: %w", err)
	}
	return answers, err
}

// unreported is the kernel's value of a switch that the driver does not report (preset by rtnl_fill_vfinfo in
// net/core/rtnetlink.c).
const unreported = 0xffffffff

func protocolName(etherType uint16) string {
	switch etherType {
	case 0, unix.ETH_P_8021Q:
		return "802.1Q"
	case unix.ETH_P_8021AD:
		return "802.1ad"
	}
	return fmt.Sprintf("%#04x", etherType)
}

// States returns the names of a VF's link states, by IFLA_VF_LINK_STATE_.
func States() []string { return []string{"auto", "enable", "disable"} }

// ParseLink parses the answer about one interface. If the answer lacks a VF, for example while the PF is busy with it,
// the error is EAGAIN.
func ParseLink(message []byte) (*Link, error) {
	if len(message) < unix.SizeofIfInfomsg {
		return nil, errors.New("short message about an interface")
	}
	info := nl.DeserializeIfInfomsg(message)
	attrs, err := nl.ParseRouteAttr(message[info.Len():])
	if err != nil {
		return nil, fmt.Errorf("parse the message about an interface: %w", err)
	}
	l := &Link{Up: info.Flags&unix.IFF_UP != 0, Carrier: info.Flags&unix.IFF_LOWER_UP != 0}
	ethernet := info.Type == unix.ARPHRD_ETHER
	count := 0
	for _, a := range attrs {
		switch a.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.IFLA_IFNAME:
			l.Name = nl.BytesToString(a.Value)
		case unix.IFLA_PARENT_DEV_NAME:
			l.Parent = nl.BytesToString(a.Value)
		case unix.IFLA_NUM_VF:
			w, err := words(&a, 1)
			if err != nil {
				return nil, err
			}
			count = int(w[0])
		case unix.IFLA_VFINFO_LIST:
			if l.VFs, err = parseVFs(a.Value, ethernet); err != nil {
				return nil, err
			}
		}
	}
	return l, l.complete(count)
}

// complete compares the length of the list of VFs with their number. The list lacks a VF that its driver can't report
// at the moment (ice while it resets the VF), which shifts the later entries. If a driver never reports VFs, there is
// no list.
func (l *Link) complete(count int) error {
	if l.VFs == nil {
		l.VFs = make([]State, count)
	}
	if len(l.VFs) < count {
		return fmt.Errorf("the PF reports %d of its %d VFs: %w", len(l.VFs), count, unix.EAGAIN)
	}
	return nil
}

// parseVFs parses IFLA_VFINFO_LIST, which has the VFs in the order of their indexes.
func parseVFs(data []byte, ethernet bool) ([]State, error) {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil, fmt.Errorf("parse the list of VFs: %w", err)
	}
	var vfs []State
	for _, entry := range list {
		attrs, err := nl.ParseRouteAttr(entry.Value)
		if err != nil {
			return nil, fmt.Errorf("parse VF %d: %w", len(vfs), err)
		}
		vf, err := parseVF(attrs, ethernet)
		if err != nil {
			return nil, fmt.Errorf("parse VF %d: %w", len(vfs), err)
		}
		vfs = append(vfs, vf)
	}
	return vfs, nil
}

// words returns the 32-bit fields of an IFLA_VF_ attribute. The first is the VF's index.
func words(a *syscall.NetlinkRouteAttr, want int) ([]uint32, error) {
	if len(a.Value) < 4*want {
		return nil, fmt.Errorf("attribute %d has %d bytes, want %d", a.Attr.Type, len(a.Value), 4*want)
	}
	all := make([]uint32, want)
	for i := range all {
		all[i] = binary.NativeEndian.Uint32(a.Value[4*i:])
	}
	return all, nil
}

func parseVF(attrs []syscall.NetlinkRouteAttr, ethernet bool) (State, error) {
	var s State
	for i := range attrs {
		if err := s.take(&attrs[i], ethernet); err != nil {
			return State{}, err
		}
	}
	return s, nil
}

// take parses one attribute (struct ifla_vf_* in include/uapi/linux/if_link.h).
func (s *State) take(a *syscall.NetlinkRouteAttr, ethernet bool) error {
	switch a.Attr.Type &^ unix.NLA_F_NESTED {
	case nl.IFLA_VF_MAC:
		return s.takeMAC(a, ethernet)
	case nl.IFLA_VF_VLAN_LIST:
		return s.takeVLAN(a.Value)
	case nl.IFLA_VF_RATE:
		w, err := words(a, 3)
		if err == nil {
			// In Mbit/s; 0 means no limit (struct ifla_vf_rate).
			s.Settings.Rate = &device.TxRate{Min: int(w[1]), Max: int(w[2])}
		}
		return err
	case nl.IFLA_VF_LINK_STATE:
		w, err := words(a, 2)
		if err == nil && int(w[1]) < len(States()) {
			s.Settings.LinkState = States()[w[1]]
		}
		return err
	case nl.IFLA_VF_SPOOFCHK:
		return takeSwitch(a, &s.Settings.SpoofCheck)
	case nl.IFLA_VF_TRUST:
		return takeSwitch(a, &s.Settings.Trust)
	case nl.IFLA_VF_RSS_QUERY_EN:
		return takeSwitch(a, &s.Settings.RSSQuery)
	case nl.IFLA_VF_IB_NODE_GUID:
		return takeGUID(a, &s.Settings.NodeGUID)
	case nl.IFLA_VF_IB_PORT_GUID:
		return takeGUID(a, &s.Settings.PortGUID)
	case nl.IFLA_VF_STATS:
		return s.Counters.take(a.Value)
	}
	return nil
}

func (s *State) takeMAC(a *syscall.NetlinkRouteAttr, ethernet bool) error {
	const length = 6
	if len(a.Value) < 4+length {
		return fmt.Errorf("a MAC of %d bytes", len(a.Value))
	}
	if ethernet { // for InfiniBand, it is the PF's own 20-byte address
		s.Settings.MAC = net.HardwareAddr(a.Value[4 : 4+length]).String()
	}
	return nil
}

// takeVLAN parses the first entry of the list. No driver has more.
func (s *State) takeVLAN(data []byte) error {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return fmt.Errorf("parse the list of VLANs: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	w, err := words(&list[0], 4)
	if err != nil {
		return err
	}
	// The only field in network byte order (struct ifla_vf_vlan_info).
	protocol := binary.BigEndian.Uint16(list[0].Value[12:])
	s.Settings.VLAN = &device.VLAN{ID: int(w[1]), QoS: int(w[2]), Protocol: protocolName(protocol)}
	return nil
}

func takeSwitch(a *syscall.NetlinkRouteAttr, to **bool) error {
	w, err := words(a, 2)
	if err == nil && w[1] != unreported {
		*to = new(w[1] != 0)
	}
	return err
}

// takeGUID parses a 64-bit number in the machine's byte order, aligned as in C (struct ifla_vf_guid).
func takeGUID(a *syscall.NetlinkRouteAttr, to *string) error {
	if len(a.Value) < nl.SizeofVfGUID {
		return fmt.Errorf("a GUID in %d bytes", len(a.Value))
	}
	guid := binary.BigEndian.AppendUint64(nil, binary.NativeEndian.Uint64(a.Value[8:]))
	*to = net.HardwareAddr(guid).String()
	return nil
}

func (c *Counters) take(data []byte) error {
	list, err := nl.ParseRouteAttr(data)
	if err != nil {
		return fmt.Errorf("parse the counters: %w", err)
	}
	places := map[uint16]*uint64{
		nl.IFLA_VF_STATS_RX_PACKETS: &c.RxPackets, nl.IFLA_VF_STATS_TX_PACKETS: &c.TxPackets,
		nl.IFLA_VF_STATS_RX_BYTES: &c.RxBytes, nl.IFLA_VF_STATS_TX_BYTES: &c.TxBytes,
		nl.IFLA_VF_STATS_RX_DROPPED: &c.RxDropped, nl.IFLA_VF_STATS_TX_DROPPED: &c.TxDropped,
	}
	for _, a := range list {
		if place := places[a.Attr.Type]; place != nil && len(a.Value) >= 8 {
			*place = binary.NativeEndian.Uint64(a.Value)
		}
	}
	return nil
}

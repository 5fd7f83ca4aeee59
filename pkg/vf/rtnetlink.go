package vf

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Rtnetlink reads and writes by the kernel's rtnetlink, in the network
// namespace of the node's first process: that of a pod has no PFs. It needs
// CAP_NET_ADMIN and CAP_SYS_ADMIN, and the node's processes in sight (hostPID).
type Rtnetlink struct {
	proc     string
	requests requests
}

// NewRtnetlink returns the interfaces of the node whose proc is at that path.
func NewRtnetlink(proc string) *Rtnetlink { return &Rtnetlink{proc, newRequests()} }

// Read returns the interface of that number with its VFs.
func (r *Rtnetlink) Read(ctx context.Context, number int) (*Link, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	req.AddData(interfaceMessage(number))
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(nl.RTEXT_FILTER_VF)))
	answers, err := r.do(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("read interface %d and its VFs: %w", number, err)
	}
	if len(answers) != 1 {
		return nil, fmt.Errorf("read interface %d and its VFs: %d answers", number, len(answers))
	}
	return parseLink(answers[0])
}

// Write gives one setting of a VF the value that it has in to. Settings are
// written one at a time: the kernel applies those of one request in order and
// leaves what it did when it comes to one that the driver refuses.
func (r *Rtnetlink) Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error {
	attr, err := settingAttr(index, s, to)
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	req.AddData(interfaceMessage(number))
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST, nil)
	list.AddRtAttr(nl.IFLA_VF_INFO, nil).AddChild(attr)
	req.AddData(list)
	_, err = r.do(ctx, req)
	return err
}

func interfaceMessage(number int) *nl.IfInfomsg {
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = int32(number)
	return m
}

// do carries out one request on a socket of its own.
func (r *Rtnetlink) do(ctx context.Context, req *nl.NetlinkRequest) ([][]byte, error) {
	return r.requests.do(ctx, requestLimit, func() ([][]byte, error) { return r.execute(req) })
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

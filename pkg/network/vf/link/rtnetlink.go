package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Rtnetlink reads by the kernel's rtnetlink, in the network
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
	req.AddData(InterfaceMessage(number))
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

// InterfaceMessage returns the head of a message about the interface of that number.
func InterfaceMessage(number int) *nl.IfInfomsg {
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = int32(number)
	return m
}

// Do carries out one request on a socket of its own, one at a time. It returns
// with the context at the latest, and a request that hangs in the kernel then is
// left behind.
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

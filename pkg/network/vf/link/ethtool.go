package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// errNoEthtool says that the kernel has no ethtool by netlink (before 5.6).
var errNoEthtool = errors.New("the kernel has no ethtool by netlink")

// Pause says whether a port uses Ethernet's pause frames, or offers to if it negotiates that.
type Pause struct {
	// Receive: the port stops sending when it gets a pause frame. Send: it sends pause frames.
	Receive bool `json:"receive"`
	Send    bool `json:"send"`
}

// Ethtool reads settings of interfaces from the kernel's ethtool, in the network namespace of the node's first process.
// It needs the same as [Rtnetlink].
type Ethtool struct {
	proc     string
	requests requests
}

// NewEthtool returns the interfaces of the node with that proc.
func NewEthtool(proc string) *Ethtool { return &Ethtool{proc, newRequests()} }

// Pause returns an interface's settings of flow control, or nil if its driver has none.
func (e *Ethtool) Pause(ctx context.Context, number int) (*Pause, error) {
	answers, err := e.requests.do(ctx, Limit, func() ([][]byte, error) { return e.ask(unix.ETHTOOL_MSG_PAUSE_GET, number) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil //nolint:nilnil // documented above
	}
	if err != nil {
		return nil, fmt.Errorf("read the pause parameters of interface %d: %w", number, err)
	}
	if len(answers) != 1 {
		return nil, fmt.Errorf("read the pause parameters of interface %d: %d answers", number, len(answers))
	}
	return parsePause(answers[0])
}

// ask sends a request, which begins with the interface.
func (e *Ethtool) ask(command uint8, number int) ([][]byte, error) {
	socket, err := openSocket(e.proc, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: socket}}
	family, err := genericFamily(sockets, unix.ETHTOOL_GENL_NAME, errNoEthtool)
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(family, unix.NLM_F_ACK)
	req.Sockets = sockets
	req.AddData(&nl.Genlmsg{Command: command, Version: unix.ETHTOOL_GENL_VERSION})
	header := nl.NewRtAttr(unix.ETHTOOL_A_PAUSE_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(number)))
	req.AddData(header)
	return req.Execute(unix.NETLINK_GENERIC, 0)
}

// parsePause parses the answer (Documentation/networking/ethtool-netlink.rst PAUSE_GET).
func parsePause(message []byte) (*Pause, error) {
	attrs, err := genericAttrs(message)
	if err != nil {
		return nil, err
	}
	p, known := &Pause{}, 0
	for _, a := range attrs {
		if len(a.Value) == 0 {
			continue
		}
		switch a.Attr.Type {
		case unix.ETHTOOL_A_PAUSE_RX:
			p.Receive, known = a.Value[0] != 0, known+1
		case unix.ETHTOOL_A_PAUSE_TX:
			p.Send, known = a.Value[0] != 0, known+1
		}
	}
	if known != 2 {
		return nil, errors.New("the answer about pause parameters is incomplete")
	}
	return p, nil
}

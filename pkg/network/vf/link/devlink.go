package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Mode is the mode of a PF's eswitch, in devlink's terms. It is empty if the PF's driver has no modes.
type Mode string

// The modes (Documentation/networking/devlink/devlink-eswitch-attr.rst). In switchdev mode each VF has a representor,
// an interface of the node. The bridge or the rules there handle the VF's traffic.
const (
	Legacy    Mode = "legacy"
	Switchdev Mode = "switchdev"
)

// Switchdev reports whether VFs have representors. It is true for modes that are unknown to this version.
func (m Mode) Switchdev() bool { return m != "" && m != Legacy }

// errNoDevlink says that the kernel was built without devlink.
var errNoDevlink = errors.New("the kernel has no devlink")

// Handle identifies a device in devlink: "pci", "0000:3b:00.0".
type Handle struct{ Bus, Name string }

// Switch is the eswitch of a PF.
type Switch struct {
	Mode Mode
	// Ports are the ports of this node's VFs, in switchdev mode.
	Ports []Port
}

// Port connects a VF to the eswitch.
type Port struct {
	// Index is the port's index in devlink, VF the VF's index at its PF.
	Index uint32 `json:"index"`
	VF    int    `json:"vf"`
	// Representor is the name of the port's interface on the node.
	Representor string `json:"representor,omitempty"`
	// MAC is the address that is set for the VF. It is empty if the driver does not support that.
	MAC string `json:"mac,omitempty"`
}

// Devlink reads eswitches from the kernel's devlink, in the network namespace of the node's first process. It needs the
// same as [Rtnetlink].
type Devlink struct {
	proc     string
	requests requests
}

// NewDevlink returns the eswitches of the node with that proc.
func NewDevlink(proc string) *Devlink { return &Devlink{proc, newRequests()} }

// Read returns a device's eswitch. If its driver supports no devlink or has no eswitch, the mode is empty.
func (d *Devlink) Read(ctx context.Context, h Handle) (*Switch, error) {
	answers, err := d.Do(ctx, Limit, Command{Number: nl.DEVLINK_CMD_ESWITCH_GET, Flags: unix.NLM_F_ACK, Handle: h})
	if errors.Is(err, errNoDevlink) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return &Switch{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the eswitch mode of %s: %w", h.Name, err)
	}
	s := &Switch{}
	if len(answers) > 0 {
		if s.Mode, err = parseMode(answers[0]); err != nil {
			return nil, fmt.Errorf("read the eswitch mode of %s: %w", h.Name, err)
		}
	}
	if !s.Mode.Switchdev() {
		return s, nil
	}
	if s.Ports, err = d.ports(ctx, h); err != nil {
		return nil, fmt.Errorf("list the ports of %s: %w", h.Name, err)
	}
	return s, nil
}

// ports lists the ports of all devices, because kernels before 6.6 have no other list, and returns those of VFs of h.
func (d *Devlink) ports(ctx context.Context, h Handle) ([]Port, error) {
	answers, err := d.Do(ctx, Limit, Command{Number: nl.DEVLINK_CMD_PORT_GET, Flags: unix.NLM_F_DUMP, Handle: h})
	if err != nil {
		return nil, err
	}
	var ports []Port
	for _, message := range answers {
		p, err := parsePort(message)
		if err != nil {
			return nil, err
		}
		// An external port belongs to a VF of another host, as on a DPU (Documentation/networking/devlink/devlink-port.rst).
		if p.handle == h && p.flavour == nl.DEVLINK_PORT_FLAVOUR_PCI_VF && !p.external {
			ports = append(ports, p.port)
		}
	}
	return ports, nil
}

// Do carries out one command for a device on a new socket, as [Rtnetlink.Do] does, and waits at most for limit.
func (d *Devlink) Do(ctx context.Context, limit time.Duration, c Command) ([][]byte, error) {
	return d.requests.do(ctx, limit, func() ([][]byte, error) { return d.execute(&c) })
}

// Command is a devlink command for one device.
type Command struct {
	// Number is one of DEVLINK_CMD_, Flags are of NLM_F_.
	Number uint8
	Flags  int
	Handle Handle
	Attrs  []*nl.RtAttr
}

func (d *Devlink) execute(c *Command) ([][]byte, error) {
	socket, err := openSocket(d.proc, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: socket}}
	family, err := genericFamily(sockets, nl.GENL_DEVLINK_NAME, errNoDevlink)
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(family, c.Flags)
	req.Sockets = sockets
	req.AddData(&nl.Genlmsg{Command: c.Number, Version: nl.GENL_DEVLINK_VERSION})
	req.AddData(nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated(c.Handle.Bus)))
	req.AddData(nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated(c.Handle.Name)))
	for _, a := range c.Attrs {
		req.AddData(a)
	}
	return req.Execute(unix.NETLINK_GENERIC, 0)
}

// genericFamily returns the number of a generic netlink family. missing is the error if the kernel does not have it.
func genericFamily(sockets map[int]*nl.SocketHandle, name string, missing error) (int, error) {
	req := nl.NewNetlinkRequest(nl.GENL_ID_CTRL, unix.NLM_F_ACK)
	req.Sockets = sockets
	req.AddData(&nl.Genlmsg{Command: nl.GENL_CTRL_CMD_GETFAMILY, Version: nl.GENL_CTRL_VERSION})
	req.AddData(nl.NewRtAttr(nl.GENL_CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(name)))
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, missing
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the family %s of generic netlink: %w", name, err)
	}
	for _, message := range answers {
		attrs, err := genericAttrs(message)
		if err != nil {
			return 0, err
		}
		for _, a := range attrs {
			if a.Attr.Type == nl.GENL_CTRL_ATTR_FAMILY_ID && len(a.Value) >= 2 {
				return int(binary.NativeEndian.Uint16(a.Value)), nil
			}
		}
	}
	return 0, missing
}

// Attributes that package nl does not have (enum devlink_attr in include/uapi/linux/devlink.h).
const (
	attrPCIVFNumber = 128
	attrExternal    = 149
)

// port is a Port with the fields that decide whether it belongs to a VF of a device.
type port struct {
	port    Port
	handle  Handle
	flavour uint16
	// external is set for a port of another host on the same eswitch, as on a DPU.
	external bool
}

func genericAttrs(message []byte) ([]syscall.NetlinkRouteAttr, error) {
	if len(message) < nl.SizeofGenlmsg {
		return nil, errors.New("short generic netlink message")
	}
	return nl.ParseRouteAttr(message[nl.SizeofGenlmsg:])
}

func parseMode(message []byte) (Mode, error) {
	attrs, err := genericAttrs(message)
	if err != nil {
		return "", err
	}
	for _, a := range attrs {
		if a.Attr.Type != nl.DEVLINK_ATTR_ESWITCH_MODE || len(a.Value) < 2 {
			continue
		}
		switch number := binary.NativeEndian.Uint16(a.Value); number {
		case nl.DEVLINK_ESWITCH_MODE_LEGACY:
			return Legacy, nil
		case nl.DEVLINK_ESWITCH_MODE_SWITCHDEV:
			return Switchdev, nil
		default:
			return Mode(fmt.Sprintf("mode %d", number)), nil
		}
	}
	return "", nil
}

func parsePort(message []byte) (*port, error) {
	attrs, err := genericAttrs(message)
	if err != nil {
		return nil, err
	}
	p := &port{}
	for i := range attrs {
		if err := p.take(&attrs[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *port) take(a *syscall.NetlinkRouteAttr) error {
	short := len(a.Value) < 2
	switch a.Attr.Type &^ unix.NLA_F_NESTED {
	case nl.DEVLINK_ATTR_BUS_NAME:
		p.handle.Bus = nl.BytesToString(a.Value)
	case nl.DEVLINK_ATTR_DEV_NAME:
		p.handle.Name = nl.BytesToString(a.Value)
	case nl.DEVLINK_ATTR_PORT_NETDEV_NAME:
		p.port.Representor = nl.BytesToString(a.Value)
	case nl.DEVLINK_ATTR_PORT_INDEX:
		w, err := words(a, 1)
		if err == nil {
			p.port.Index = w[0]
		}
		return err
	case nl.DEVLINK_ATTR_PORT_FLAVOUR:
		if !short {
			p.flavour = binary.NativeEndian.Uint16(a.Value)
		}
	case attrPCIVFNumber:
		if !short {
			p.port.VF = int(binary.NativeEndian.Uint16(a.Value))
		}
	case attrExternal:
		p.external = len(a.Value) > 0 && a.Value[0] != 0
	case nl.DEVLINK_ATTR_PORT_FUNCTION:
		return p.takeFunction(a.Value)
	}
	return nil
}

func (p *port) takeFunction(data []byte) error {
	attrs, err := nl.ParseRouteAttr(data)
	if err != nil {
		return fmt.Errorf("parse the function of port %d: %w", p.port.Index, err)
	}
	for _, a := range attrs {
		const length = 6 // of an Ethernet port; others have other lengths
		if a.Attr.Type == nl.DEVLINK_PORT_FUNCTION_ATTR_HW_ADDR && len(a.Value) == length {
			p.port.MAC = net.HardwareAddr(a.Value).String()
		}
	}
	return nil
}

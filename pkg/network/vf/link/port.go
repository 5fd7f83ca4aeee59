package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes that package nl lacks (enum devlink_attr in include/uapi/linux/devlink.h).
const (
	attrPCIVFNumber = 128
	attrExternal    = 149
)

// port is a Port with what decides whether it is one of a device's VFs.
type port struct {
	Port
	handle  Handle
	flavour uint16
	// external is set for those of another host behind the same eswitch, as on a
	// DPU.
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
		p.Representor = nl.BytesToString(a.Value)
	case nl.DEVLINK_ATTR_PORT_INDEX:
		w, err := words(a, 1)
		if err == nil {
			p.Index = w[0]
		}
		return err
	case nl.DEVLINK_ATTR_PORT_FLAVOUR:
		if !short {
			p.flavour = binary.NativeEndian.Uint16(a.Value)
		}
	case attrPCIVFNumber:
		if !short {
			p.VF = int(binary.NativeEndian.Uint16(a.Value))
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
		return fmt.Errorf("parse the function of port %d: %w", p.Index, err)
	}
	for _, a := range attrs {
		const length = 6 // an Ethernet port's; others have none of that length
		if a.Attr.Type == nl.DEVLINK_PORT_FUNCTION_ATTR_HW_ADDR && len(a.Value) == length {
			p.MAC = net.HardwareAddr(a.Value).String()
		}
	}
	return nil
}

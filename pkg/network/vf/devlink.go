package vf

import (
	"context"
	"encoding/binary"
	"net"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
)

// modeLimit is for a change of an eswitch's mode, which builds it anew.
const modeLimit = time.Minute

// Devlink reads and changes eswitches by the kernel's devlink, in the network
// namespace of the node's first process, as [Rtnetlink] does and with the same
// needs.
type Devlink struct{ *link.Devlink }

// NewDevlink returns the eswitches of the node whose proc is at that path.
func NewDevlink(proc string) *Devlink { return &Devlink{link.NewDevlink(proc)} }

// SetMode sets the mode. Drivers drop the representors that there were, and some
// refuse it while there are VFs (ice). It may be repeated.
func (d *Devlink) SetMode(ctx context.Context, h Handle, m Mode) error {
	number := uint16(nl.DEVLINK_ESWITCH_MODE_LEGACY)
	if m == Switchdev {
		number = nl.DEVLINK_ESWITCH_MODE_SWITCHDEV
	}
	mode := nl.NewRtAttr(nl.DEVLINK_ATTR_ESWITCH_MODE, nl.Uint16Attr(number))
	_, err := d.Do(ctx, modeLimit, link.Command{Number: nl.DEVLINK_CMD_ESWITCH_SET, Flags: unix.NLM_F_ACK, Handle: h, Attrs: []*nl.RtAttr{mode}})
	return err
}

// SetMAC sets the address of the VF behind a port (devlink port function set
// hw_addr, Documentation/networking/devlink/devlink-port.rst).
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

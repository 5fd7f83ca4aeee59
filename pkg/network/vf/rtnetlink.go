package vf

import (
	"context"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
)

// Rtnetlink reads and writes by the kernel's rtnetlink, in the network
// namespace of the node's first process: that of a pod has no PFs. It needs
// CAP_NET_ADMIN and CAP_SYS_ADMIN, and the node's processes in sight (hostPID).
type Rtnetlink struct{ *link.Rtnetlink }

// NewRtnetlink returns the interfaces of the node whose proc is at that path.
func NewRtnetlink(proc string) *Rtnetlink { return &Rtnetlink{link.NewRtnetlink(proc)} }

// Write gives one setting of a VF the value that it has in to. Settings are
// written one at a time: the kernel applies those of one request in order and
// leaves what it did when it comes to one that the driver refuses.
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

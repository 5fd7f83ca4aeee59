package link

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// generic is an answer of devlink with the attributes.
func generic(attrs ...*nl.RtAttr) []byte {
	message := (&nl.Genlmsg{Command: nl.DEVLINK_CMD_PORT_GET, Version: nl.GENL_DEVLINK_VERSION}).Serialize()
	for _, a := range attrs {
		message = append(message, a.Serialize()...)
	}
	return message
}

func TestPort(t *testing.T) {
	function := nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FUNCTION|unix.NLA_F_NESTED, nl.NewRtAttr(nl.DEVLINK_PORT_FUNCTION_ATTR_HW_ADDR, []byte{2, 0, 0x5e, 0x10, 0, 1}).Serialize())
	got, err := parsePort(generic(
		nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated("pci")), nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated("0000:3b:00.0")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_INDEX, nl.Uint32Attr(131)), nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_NETDEV_NAME, nl.ZeroTerminated("ens1f0npf0vf3")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FLAVOUR, nl.Uint16Attr(nl.DEVLINK_PORT_FLAVOUR_PCI_VF)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER, nl.Uint16Attr(1)), nl.NewRtAttr(attrPCIVFNumber, nl.Uint16Attr(3)),
		nl.NewRtAttr(attrExternal, []byte{0}), function,
	))
	if err != nil {
		t.Fatal(err)
	}
	want := &port{
		port:   Port{Index: 131, VF: 3, Representor: "ens1f0npf0vf3", MAC: "02:00:5e:10:00:01"},
		handle: Handle{Bus: "pci", Name: "0000:3b:00.0"}, flavour: nl.DEVLINK_PORT_FLAVOUR_PCI_VF,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(port{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestModesOfEswitches(t *testing.T) {
	for number, want := range map[uint16]Mode{0: Legacy, 1: Switchdev, 2: "mode 2"} {
		got, err := parseMode(generic(nl.NewRtAttr(nl.DEVLINK_ATTR_ESWITCH_MODE, nl.Uint16Attr(number))))
		if err != nil || got != want || got.Switchdev() != (number != 0) {
			t.Errorf("mode %d is %q (switchdev: %t), %v", number, got, got.Switchdev(), err)
		}
	}
	if got, err := parseMode(generic()); err != nil || got != "" || got.Switchdev() {
		t.Errorf("no mode is %q, %v", got, err)
	}
}

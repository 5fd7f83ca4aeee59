package vf

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
)

// linkMessage is an answer of the kernel about an interface with VFs.
func linkMessage(kind uint16, vfs ...[]*nl.RtAttr) []byte {
	return append(linkHead(kind, len(vfs)), vfList(vfs...)...)
}

// linkHead is such an answer without the list of VFs.
func linkHead(kind uint16, count int) []byte {
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Type, info.Flags, info.Index = kind, unix.IFF_UP|unix.IFF_LOWER_UP, 7
	message := info.Serialize()
	message = append(message, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("ens1f0")).Serialize()...)
	message = append(message, nl.NewRtAttr(unix.IFLA_PARENT_DEV_NAME, nl.ZeroTerminated("0000:21:00.0")).Serialize()...)
	return append(message, nl.NewRtAttr(unix.IFLA_NUM_VF, pack(uint32(count))).Serialize()...)
}

func vfList(vfs ...[]*nl.RtAttr) []byte {
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST|unix.NLA_F_NESTED, nil)
	for _, attrs := range vfs {
		entry := list.AddRtAttr(nl.IFLA_VF_INFO, nil)
		for _, a := range attrs {
			entry.AddChild(a)
		}
	}
	return list.Serialize()
}

// TestSettingsAreReadAsTheyAreWritten: the attributes are the same both ways.
func TestSettingsAreReadAsTheyAreWritten(t *testing.T) {
	want := device.VFSettings{
		MAC: "02:00:5e:10:00:01", VLAN: &device.VLAN{ID: 100, QoS: 3, Protocol: "802.1ad"}, Rate: &device.TxRate{Min: 10, Max: 1000},
		LinkState: "disable", SpoofCheck: new(true), RSSQuery: new(true), Trust: new(false),
		NodeGUID: "02:00:5e:10:00:00:00:01", PortGUID: "02:00:5e:10:00:00:00:02",
	}
	var attrs []*nl.RtAttr
	for _, s := range device.AllVFSettings() {
		a, err := settingAttr(3, s, &want)
		if err != nil {
			t.Fatal(err)
		}
		attrs = append(attrs, a)
	}
	got, err := link.ParseLink(linkMessage(unix.ARPHRD_ETHER, nil, attrs))
	if err != nil {
		t.Fatal(err)
	}
	wantLink := &Link{Name: "ens1f0", Parent: "0000:21:00.0", Up: true, Carrier: true, VFs: []State{{}, {Settings: want}}}
	if diff := cmp.Diff(wantLink, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBytesAreTheKernels holds the attributes against the structures of
// include/uapi/linux/if_link.h, little-endian.
func TestBytesAreTheKernels(t *testing.T) {
	to := &device.VFSettings{MAC: "02:00:5e:10:00:01", VLAN: &device.VLAN{ID: 100, QoS: 3, Protocol: "802.1Q"}, Rate: &device.TxRate{Max: 1000}, PortGUID: "02:00:5e:10:00:00:00:2a"}
	for s, want := range map[device.VFSetting]string{
		device.VFMAC:      "28000100" + "01000000" + "02005e100001" + "0000000000000000000000000000000000000000000000000000",
		device.VFVLAN:     "18000c00" + "14000100" + "01000000" + "64000000" + "03000000" + "81000000",
		device.VFPortGUID: "14000b00" + "01000000" + "00000000" + "2a00000010" + "5e0002",
		device.VFTxRate:   "10000600" + "01000000" + "00000000" + "e8030000",
	} {
		a, err := settingAttr(1, s, to)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(a.Serialize()); got != want {
			t.Errorf("%s:\n%s, want\n%s", s, got, want)
		}
	}
}

func TestMessageWithoutUnreportedValues(t *testing.T) {
	got, err := link.ParseLink(linkMessage(unix.ARPHRD_INFINIBAND, []*nl.RtAttr{
		nl.NewRtAttr(nl.IFLA_VF_MAC, make([]byte, nl.SizeofVfMac)),
		nl.NewRtAttr(nl.IFLA_VF_SPOOFCHK, pack(0, 0xffffffff)),
		nl.NewRtAttr(nl.IFLA_VF_TRUST, pack(0, 0xffffffff)),
		nl.NewRtAttr(nl.IFLA_VF_RSS_QUERY_EN, pack(0, 0xffffffff)),
	}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]State{{}}, got.VFs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVFsThatAreLeftOut(t *testing.T) {
	one := []*nl.RtAttr{nl.NewRtAttr(nl.IFLA_VF_TRUST, pack(2, 0))}
	if got, err := link.ParseLink(append(linkHead(unix.ARPHRD_ETHER, 3), vfList(one, one)...)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("two of three: %+v, %v; want to be told to try again", got, err)
	}
	got, err := link.ParseLink(linkHead(unix.ARPHRD_ETHER, 3))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(make([]State, 3), got.VFs); diff != "" {
		t.Errorf("a driver that says nothing of VFs (-want +got):\n%s", diff)
	}
}

func TestCounters(t *testing.T) {
	stats := nl.NewRtAttr(nl.IFLA_VF_STATS, nil)
	stats.AddRtAttr(nl.IFLA_VF_STATS_RX_BYTES, nl.Uint64Attr(1500))
	stats.AddRtAttr(nl.IFLA_VF_STATS_TX_DROPPED, nl.Uint64Attr(2))
	got, err := link.ParseLink(linkMessage(unix.ARPHRD_ETHER, []*nl.RtAttr{stats}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Counters{RxBytes: 1500, TxDropped: 2}, got.VFs[0].Counters); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

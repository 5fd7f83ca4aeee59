package link

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

func TestPauseParameters(t *testing.T) {
	attr := func(kind int, value ...byte) *nl.RtAttr { return nl.NewRtAttr(kind, value) }
	header := nl.NewRtAttr(unix.ETHTOOL_A_PAUSE_HEADER|unix.NLA_F_NESTED, nl.NewRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(11)).Serialize())
	for _, c := range []struct {
		name  string
		attrs []*nl.RtAttr
		want  *Pause
	}{
		{"off", []*nl.RtAttr{header, attr(unix.ETHTOOL_A_PAUSE_AUTONEG, 0), attr(unix.ETHTOOL_A_PAUSE_RX, 0), attr(unix.ETHTOOL_A_PAUSE_TX, 0)}, &Pause{}},
		{"receives", []*nl.RtAttr{header, attr(unix.ETHTOOL_A_PAUSE_RX, 1), attr(unix.ETHTOOL_A_PAUSE_TX, 0)}, &Pause{Receive: true}},
		{"sends", []*nl.RtAttr{header, attr(unix.ETHTOOL_A_PAUSE_RX, 0), attr(unix.ETHTOOL_A_PAUSE_TX, 1)}, &Pause{Send: true}},
		{"half an answer", []*nl.RtAttr{header, attr(unix.ETHTOOL_A_PAUSE_RX, 0)}, nil},
		{"no value", []*nl.RtAttr{attr(unix.ETHTOOL_A_PAUSE_RX), attr(unix.ETHTOOL_A_PAUSE_TX)}, nil},
	} {
		got, err := parsePause(generic(c.attrs...))
		if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
	if got, err := parsePause([]byte{1}); err == nil {
		t.Errorf("a short message is %+v", got)
	}
}

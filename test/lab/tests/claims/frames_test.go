//go:build lab

package claims_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/test/lab/frames"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// The texts of the frames.
const (
	honest      = "honest"
	neighbors   = "from the neighbor's address"
	otherVLAN   = "tagged for the other VLAN"
	twoTags     = "tagged for the own VLAN and inside for the other"
	fromOutside = "from outside"
	atLast      = "from outside, after all others"
)

// arrivalLimit is for a frame to come to where it must come.
const arrivalLimit = 30 * time.Second

// listener hears frames and keeps them.
type listener struct {
	what string
	more func() ([]frames.Frame, error)
	all  []frames.Frame
}

// await hears frames until one has that text.
func (l *listener) await(t *testing.T, text string) {
	t.Helper()
	l.awaitSent(t, text, func() error { return nil })
}

// awaitSent waits for the frame with that text, which is sent again and again: a VF hears nothing for some seconds after its PF was down.
func (l *listener) awaitSent(t *testing.T, text string, send func() error) {
	t.Helper()
	kernel.Eventually(t, l.what+" hears the frame "+text, arrivalLimit, func() bool {
		if err := send(); err != nil {
			t.Fatal(err)
		}
		heard, err := l.more()
		if err != nil {
			t.Fatal(err)
		}
		l.all = append(l.all, heard...)
		return l.with(text) != nil
	})
}

// with is the frame with that text, nil for none.
func (l *listener) with(text string) *frames.Frame {
	if i := slices.IndexFunc(l.all, func(f frames.Frame) bool { return f.Text == text }); i >= 0 {
		return &l.all[i]
	}
	return nil
}

// listen makes a tenant's VM listen from now on.
func (v *tenantVM) listen(t *testing.T) *listener {
	t.Helper()
	l := &listener{what: v.uid, more: func() ([]frames.Frame, error) { return v.Frames(t.Context(), v.mac) }}
	if _, err := l.more(); err != nil {
		t.Fatal(err)
	}
	return l
}

// wire is the other PF, which hears all that is on the segment.
func wire(t *testing.T) (*frames.Socket, *listener) {
	t.Helper()
	socket, err := frames.Open(kernel.LinkUp(t, topology.PF1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket, &listener{what: "the wire", more: socket.Heard}
}

// checkForgedFrames has a tenant of VLAN 100 send what it must not: frames from its neighbor's address, and frames tagged for
// VLAN 200. The honest frame is the last one sent, so that what is not heard when it is was not let through.
func checkForgedFrames(t *testing.T, n *node.Node, from, same, other *tenantVM) {
	t.Helper()
	socket, segment := wire(t)
	neighbor, stranger := same.listen(t), other.listen(t)
	stranger.awaitSent(t, fromOutside, func() error {
		return socket.Send(frames.Frame{Source: topology.PF1MAC, VLANs: []int{200}, Text: fromOutside})
	})
	_, err := from.Frames(t.Context(), from.mac,
		frames.Frame{Source: same.mac, Text: neighbors},
		frames.Frame{Source: from.mac, VLANs: []int{200}, Text: otherVLAN},
		frames.Frame{Source: from.mac, VLANs: []int{100, 200}, Text: twoTags},
		frames.Frame{Source: from.mac, Text: honest})
	if err != nil {
		t.Fatal(err)
	}
	segment.await(t, honest)
	neighbor.await(t, honest)
	if err := socket.Send(frames.Frame{Source: topology.PF1MAC, VLANs: []int{200}, Text: atLast}); err != nil {
		t.Fatal(err)
	}
	stranger.await(t, atLast)
	for _, f := range segment.all {
		if len(f.VLANs) == 0 || f.VLANs[0] != 100 {
			t.Errorf("%s left with the tags %v; want 100 first", f.Text, f.VLANs)
		}
	}
	if got := segment.with(honest).VLANs; !slices.Equal(got, []int{100}) {
		t.Errorf("the honest frame left with the tags %v", got)
	}
	for _, f := range stranger.all {
		if f.Text != fromOutside && f.Text != atLast {
			t.Errorf("the tenant of VLAN 200 hears %q", f.Text)
		}
	}
	t.Logf("on the wire: %+v; the neighbor heard %+v", segment.all, neighbor.all)
	checkSpoofCheck(t, n, segment.with(neighbors) != nil)
}

// checkSpoofCheck looks whether the PF was told to check source addresses. QEMU's igb does not do it: of DTXSWC, where igb sets
// it, igb_tx_pkt_switch in hw/net/igb_core.c reads the loopback bit alone.
func checkSpoofCheck(t *testing.T, n *node.Node, left bool) {
	t.Helper()
	state, _, err := n.Parts.VFs.Read(t.Context(), stage.Address(t, topology.PF0), 0)
	if err != nil {
		t.Fatal(err)
	}
	if on := state.Settings.SpoofCheck; on == nil || !*on {
		t.Errorf("the PF has %s; want the spoof check on", state.Settings.String())
	}
	t.Logf("the spoof check is on; a frame with another's address left all the same: %t", left)
}

package frames

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
)

// etherType marks the lab's frames: the first that IEEE 802 leaves to local experiments.
const etherType = 0x88b5

const (
	etherType8021Q = 0x8100
	vlanID         = 0x0fff // of a tag's 16 bits; the others are priority
	addresses      = 12     // bytes of destination and source
	tag            = 4      // bytes
)

// Frame is a frame of the lab's own kind, to everybody.
type Frame struct {
	// Source is the MAC address that it says to come from.
	Source string `json:"source"`
	// VLANs are the IDs of its 802.1Q tags, the outermost first.
	VLANs []int `json:"vlans,omitempty"`
	// Text tells it from others.
	Text string `json:"text"`
}

// marshal returns the frame as it is on the wire.
func (f *Frame) marshal() ([]byte, error) {
	source, err := net.ParseMAC(f.Source)
	if err != nil {
		return nil, fmt.Errorf("a frame's source: %w", err)
	}
	data := append(bytes.Repeat([]byte{0xff}, addresses-len(source)), source...)
	for _, id := range f.VLANs {
		data = binary.BigEndian.AppendUint16(data, etherType8021Q)
		data = binary.BigEndian.AppendUint16(data, uint16(id))
	}
	data = binary.BigEndian.AppendUint16(data, etherType)
	return append(append(data, byte(len(f.Text))), f.Text...), nil // short frames are padded on their way
}

// unmarshal reads a frame from the wire; false for one that is not the lab's.
func unmarshal(data []byte) (Frame, bool) {
	if len(data) < addresses {
		return Frame{}, false
	}
	f := Frame{Source: net.HardwareAddr(data[addresses/2 : addresses]).String()}
	rest := data[addresses:]
	for len(rest) >= tag && binary.BigEndian.Uint16(rest) == etherType8021Q {
		f.VLANs = append(f.VLANs, int(binary.BigEndian.Uint16(rest[2:])&vlanID))
		rest = rest[tag:]
	}
	const head = 3 // EtherType, length
	if len(rest) < head || binary.BigEndian.Uint16(rest) != etherType || len(rest)-head < int(rest[2]) {
		return Frame{}, false
	}
	f.Text = string(rest[head : head+int(rest[2])])
	return f, true
}

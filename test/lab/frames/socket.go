package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket sends and hears frames on one interface. Its methods must not be called concurrently.
type Socket struct{ fd int }

// Open opens a socket on the interface of that name, which is to hear all that comes in from now on, whoever it is for.
func Open(name string) (*Socket, error) {
	s, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", name, err)
	}
	return s, nil
}

func open(name string) (*Socket, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	everything := bigEndian(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	s := &Socket{fd}
	// The kernel takes the outermost tag off whatever it hands out, and tells it on the side.
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(i.Index), Type: unix.PACKET_MR_PROMISC}),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: i.Index}),
	)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// Send sends a frame as it is.
func (s *Socket) Send(f Frame) error {
	data, err := f.marshal()
	if err != nil {
		return err
	}
	if _, err := unix.Write(s.fd, data); err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	return nil
}

// Heard returns the lab's frames that came in since the last time.
func (s *Socket) Heard() ([]Frame, error) {
	var heard []Frame
	for {
		data, err := s.receive()
		if errors.Is(err, unix.EAGAIN) {
			return heard, nil
		}
		if err != nil {
			return heard, fmt.Errorf("hear a frame: %w", err)
		}
		if f, ok := unmarshal(data); ok {
			heard = append(heard, f)
		}
	}
}

// receive returns the next packet, with its outermost tag back in its place.
func (s *Socket) receive() ([]byte, error) {
	const largest = 2048
	data, side := make([]byte, largest), make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.TpacketAuxdata{}))))
	n, sideLength, _, _, err := unix.Recvmsg(s.fd, data, side, 0)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(side[:sideLength])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA {
			return withTag(data[:n], (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))), nil
		}
	}
	return data[:n], nil
}

// withTag puts a tag back that was taken off.
func withTag(data []byte, side *unix.TpacketAuxdata) []byte {
	if side.Status&unix.TP_STATUS_VLAN_VALID == 0 || len(data) < addresses {
		return data
	}
	whole := append([]byte{}, data[:addresses]...)
	whole = binary.BigEndian.AppendUint16(whole, etherType8021Q)
	whole = binary.BigEndian.AppendUint16(whole, side.Vlan_tci)
	return append(whole, data[addresses:]...)
}

// Close ends the listening.
func (s *Socket) Close() error { return unix.Close(s.fd) }

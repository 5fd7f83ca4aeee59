package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// family is what an echo is in one of both families.
type family struct {
	network        string
	request, reply byte
}

// familyOf returns that of an address: RFC 792, or RFC 4443, whose checksum is the kernel's work (RFC 3542, section 3.1).
func familyOf(to net.IP) family {
	if to.To4() == nil {
		return family{network: "ip6:ipv6-icmp", request: 128, reply: 129}
	}
	return family{network: "ip4:icmp", request: 8, reply: 0}
}

// dial opens a socket for echoes, from the address that is asked for or the one that the kernel chooses.
func dial(p protocol.Ping) (*net.IPConn, family, error) {
	to := net.ParseIP(p.To)
	if to == nil {
		return nil, family{}, fmt.Errorf("%q is no IP address", p.To)
	}
	var from *net.IPAddr
	if p.From != "" {
		from = &net.IPAddr{IP: net.ParseIP(p.From)}
		if from.IP == nil {
			return nil, family{}, fmt.Errorf("%q is no IP address", p.From)
		}
	}
	f := familyOf(to)
	conn, err := net.DialIP(f.network, from, &net.IPAddr{IP: to})
	return conn, f, err
}

// ping sends echo requests and counts the replies.
func ping(p protocol.Ping) (*protocol.PingResult, error) {
	conn, f, err := dial(p)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	result := &protocol.PingResult{}
	for sequence := range p.Count {
		// Before the neighbor is resolved, a request may fail on the spot; it counts as lost.
		result.Sent++
		if _, err := conn.Write(echo(f.request, uint16(sequence))); err != nil {
			time.Sleep(time.Second)
			continue
		}
		answered, err := awaitReply(conn, f.reply, uint16(sequence))
		if err != nil {
			return nil, err
		}
		if answered {
			result.Received++
		}
	}
	return result, nil
}

// echo is a request: type, code, checksum, identifier, sequence.
func echo(request byte, sequence uint16) []byte {
	packet := make([]byte, 16)
	packet[0] = request
	binary.BigEndian.PutUint16(packet[6:], sequence)
	binary.BigEndian.PutUint16(packet[2:], checksum(packet))
	return packet
}

func checksum(packet []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(packet); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum + sum>>16)
}

// awaitReply reads until the reply comes or a second is over.
func awaitReply(conn *net.IPConn, reply byte, sequence uint16) (bool, error) {
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return false, fmt.Errorf("set a deadline: %w", err)
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFromIP(buffer) // without the IP header, which Read would leave in
		if err != nil {
			return false, nil //nolint:nilerr // a lost reply is a result, not an error
		}
		if n >= 8 && buffer[0] == reply && binary.BigEndian.Uint16(buffer[6:]) == sequence {
			return true, nil
		}
	}
}

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// ICMP types (RFC 792).
const (
	echoReply   = 0
	echoRequest = 8
)

// ping sends echo requests and counts the replies.
func ping(p protocol.Ping) (*protocol.PingResult, error) {
	to, err := net.ResolveIPAddr("ip4", p.To)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialIP("ip4:icmp", nil, to)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	result := &protocol.PingResult{}
	for sequence := range p.Count {
		// Before the neighbour is resolved, a request may fail on the spot; it counts as lost.
		result.Sent++
		if _, err := conn.Write(echo(uint16(sequence))); err != nil {
			time.Sleep(time.Second)
			continue
		}
		answered, err := awaitReply(conn, uint16(sequence))
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
func echo(sequence uint16) []byte {
	packet := make([]byte, 16)
	packet[0] = echoRequest
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
func awaitReply(conn *net.IPConn, sequence uint16) (bool, error) {
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return false, fmt.Errorf("set a deadline: %w", err)
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFromIP(buffer) // without the IP header, which Read would leave in
		if err != nil {
			return false, nil //nolint:nilerr // a lost reply is a result, not an error
		}
		if n >= 8 && buffer[0] == echoReply && binary.BigEndian.Uint16(buffer[6:]) == sequence {
			return true, nil
		}
	}
}

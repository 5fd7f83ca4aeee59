package facts

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Listening returns the addresses on which something of the node's own network
// namespace listens on a TCP port, but for those that only the node reaches, and the
// fact that says so (proc_pid_net(5)).
func (n *Node) Listening(port uint16) ([]string, Fact) {
	var open []string
	all := n.Read("proc/1/net/tcp")
	for _, file := range []Fact{all, n.Read("proc/1/net/tcp6")} {
		for line := range strings.Lines(file.Value) {
			fields := strings.Fields(line)
			const listen = "0A" // TCP_LISTEN in include/net/tcp_states.h
			if len(fields) < 4 || fields[3] != listen {
				continue
			}
			if a, ok := parseSocket(fields[1]); ok && a.Port() == port && !a.Addr().Unmap().IsLoopback() {
				open = append(open, a.Addr().String())
			}
		}
	}
	all.Value = strings.Join(open, " ")
	return open, all
}

// parseSocket reads "0100007F:1A0A": words of the address as numbers in the
// machine's byte order, which is little-endian wherever VFIO serves VMs here.
func parseSocket(text string) (netip.AddrPort, bool) {
	address, number, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	port, err2 := strconv.ParseUint(number, 16, 16)
	if !ok || err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, uint16(port)), ok
}

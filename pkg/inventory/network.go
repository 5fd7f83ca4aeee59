package inventory

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// network holds the uses that the node's network namespace makes of netdevs: addresses and routes.
type network struct {
	fs        *sysfs.FS
	addresses map[string][]string // by netdev
	byIndex   map[int][]string    // IPv4 addresses, by the netdev's index
	routes    map[string][]string
	stacked   map[string][]string // uppers by netdev, of the netdevs that were read
}

// readNetwork reads the addresses and routes of the node: IPv4 addresses as [Addresses] does, everything else from proc. In a copy of a
// node without IPv4 addresses, it finds the netdevs of addresses by the routes to their subnets. It does not find an address without such a
// route in the main table.
func readNetwork(ctx context.Context, fs *sysfs.FS, ask *link.Rtnetlink) (*network, error) {
	routes4, err1 := readLines(fs, "net/route", parseRoutes4)
	routes6, err2 := readLines(fs, "net/ipv6_route", parseRoutes6)
	local6, err3 := readLines(fs, "net/if_inet6", parseLocal6)
	known, err4 := addressesBy(ctx, fs, ask)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	n := &network{fs: fs, addresses: map[string][]string{}, byIndex: map[int][]string{}, routes: map[string][]string{}, stacked: map[string][]string{}}
	n.addRoutes(slices.Concat(routes4, routes6))
	for _, a := range known {
		if !a.Prefix.Addr().IsLoopback() {
			n.byIndex[a.Interface] = append(n.byIndex[a.Interface], a.Prefix.String())
		}
	}
	if known == nil {
		if err := n.guessLocal4(routes4); err != nil {
			return nil, err
		}
	}
	for _, a := range local6 {
		n.addresses[a.netdev] = append(n.addresses[a.netdev], a.prefix.String())
	}
	return n, nil
}

// readLines reads a file of the node's network namespace.
func readLines[T any](fs *sysfs.FS, file string, parse func(string) ([]T, error)) ([]T, error) {
	text, err := readInit(fs, file)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// guessLocal4 finds the netdevs of IPv4 addresses if no source names them.
func (n *network) guessLocal4(routes []route) error {
	text, err := readInit(n.fs, "net/fib_trie")
	if err != nil {
		return err
	}
	for _, addr := range parseLocal4(text) {
		n.addLocal4(addr, routes)
	}
	return nil
}

// addRoutes adds routes to those of their netdevs, the default ones first: a
// router may have many thousands.
func (n *network) addRoutes(routes []route) {
	slices.SortStableFunc(routes, func(a, b route) int { return cmp.Compare(a.dst.Bits(), b.dst.Bits()) })
	for _, r := range routes {
		n.routes[r.netdev] = append(n.routes[r.netdev], r.String())
	}
}

// addLocal4 finds the netdevs of an address: those that have the narrowest route to the address's subnet without a gateway.
func (n *network) addLocal4(addr netip.Addr, routes []route) {
	best := -1
	var netdevs []string
	for _, r := range routes {
		if r.via.IsValid() || r.dst.Bits() == 0 || !r.dst.Contains(addr) || r.dst.Bits() < best {
			continue
		}
		if r.dst.Bits() > best {
			best, netdevs = r.dst.Bits(), nil
		}
		netdevs = append(netdevs, r.netdev)
	}
	for _, netdev := range sorted(netdevs) {
		n.addresses[netdev] = append(n.addresses[netdev], netip.PrefixFrom(addr, best).String())
	}
}

// uses returns the uses that the node makes of f's netdevs, directly or through the devices stacked on them.
func (n *network) uses(f *device.Function) ([]device.Use, error) {
	var uses []device.Use
	for _, netdev := range f.Children.Net {
		stack, err := n.stack(f, netdev)
		if err != nil {
			return nil, err
		}
		for _, carrier := range slices.Concat([]string{netdev}, stack) {
			found, err := n.usesThrough(netdev, carrier)
			if err != nil {
				return nil, err
			}
			uses = append(uses, found...)
		}
	}
	return uses, nil
}

// usesThrough returns the addresses and routes on carrier as uses of netdev.
func (n *network) usesThrough(netdev, carrier string) ([]device.Use, error) {
	known, err := n.of4(carrier)
	if err != nil {
		return nil, err
	}
	suffix := ""
	if carrier != netdev {
		suffix = " on " + carrier
	}
	var uses []device.Use
	for _, a := range slices.Concat(known, n.addresses[carrier]) {
		uses = append(uses, device.Use{Kind: device.UseAddress, Name: netdev, Detail: a + suffix})
	}
	if routes := n.routes[carrier]; len(routes) > 0 {
		uses = append(uses, device.Use{Kind: device.UseRoute, Name: netdev, Detail: listing(routes) + suffix})
	}
	return uses, nil
}

// stack returns all netdevs above one of f's netdevs: its bond, the bridge on that bond, and so on.
func (n *network) stack(f *device.Function, netdev string) ([]string, error) {
	var stack []string
	for _, u := range f.Uses {
		if u.Kind == device.UseMaster && u.Name == netdev {
			stack = append(stack, u.Detail)
		}
	}
	for i := 0; i < len(stack); i++ { // it grows
		uppers, err := n.uppers(stack[i])
		if err != nil {
			return nil, err
		}
		for _, upper := range uppers {
			if !slices.Contains(stack, upper) {
				stack = append(stack, upper)
			}
		}
	}
	return stack, nil
}

// uppers returns the netdevs right above a stacked one.
func (n *network) uppers(netdev string) ([]string, error) {
	if uppers, ok := n.stacked[netdev]; ok {
		return uppers, nil
	}
	uppers, err := uppersAt(n.fs, "sys/class/net/"+netdev)
	if err != nil {
		return nil, err
	}
	n.stacked[netdev] = uppers
	return uppers, nil
}

// A route is one line of the node's routing tables.
type route struct {
	netdev string
	dst    netip.Prefix
	via    netip.Addr // invalid for a route without a gateway
}

// String returns the route as ip-route(8) would begin it.
func (r route) String() string {
	dst := r.dst.String()
	if r.dst.Bits() == 0 {
		dst = "default"
	}
	if !r.via.IsValid() {
		return dst
	}
	return dst + " via " + r.via.String()
}

// rtfReject marks a route that refuses packets (RTF_REJECT in
// include/uapi/linux/route.h).
const rtfReject = 0x0200

// parseRoutes4 reads the text of proc/net/route: a title, then for each route
// netdev, destination, gateway, flags, three counters and mask, the addresses
// as hexadecimal words of a little-endian machine (net/ipv4/fib_trie.c
// fib_route_seq_show). It is the main table.
func parseRoutes4(text string) ([]route, error) {
	var routes []route
	for i, line := range lines(text) {
		f := strings.Fields(line)
		if i == 0 || len(f) == 0 {
			continue
		}
		if len(f) < 8 {
			return nil, fmt.Errorf("IPv4 route %q: want at least 8 fields", line)
		}
		dst, err1 := address4(f[1])
		via, err2 := address4(f[2])
		flags, err3 := strconv.ParseUint(f[3], 16, 32)
		mask, err4 := address4(f[7])
		if err := firstError(err1, err2, err3, err4); err != nil {
			return nil, fmt.Errorf("IPv4 route %q: %w", line, err)
		}
		if flags&rtfReject != 0 {
			continue
		}
		// A route without a gateway has 0.0.0.0 here.
		if via.IsUnspecified() {
			via = netip.Addr{}
		}
		routes = append(routes, route{netdev: f[0], dst: netip.PrefixFrom(dst, bits(mask)), via: via})
	}
	return routes, nil
}

// parseRoutes6 reads the text of proc/net/ipv6_route: destination and length, source and length, gateway, metric, two counters, flags and
// netdev (net/ipv6/route.c, fib6 seq). It leaves out the routes that every netdev gets with its link-local address, and the routes to the
// node itself, because they show no use.
func parseRoutes6(text string) ([]route, error) {
	const rtfLocal, rtfAnycast = 0x80000000, 0x00100000
	var routes []route
	for _, line := range lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 {
			return nil, fmt.Errorf("IPv6 route %q: want 10 fields", line)
		}
		dst, err1 := address6(f[0])
		length, err2 := strconv.ParseUint(f[1], 16, 8)
		via, err3 := address6(f[4])
		flags, err4 := strconv.ParseUint(f[8], 16, 32)
		if err := firstError(err1, err2, err3, err4); err != nil {
			return nil, fmt.Errorf("IPv6 route %q: %w", line, err)
		}
		if flags&(rtfReject|rtfLocal|rtfAnycast) != 0 || dst.IsLinkLocalUnicast() || dst.IsMulticast() {
			continue
		}
		// A route without a gateway has :: here.
		if via.IsUnspecified() {
			via = netip.Addr{}
		}
		routes = append(routes, route{netdev: f[9], dst: netip.PrefixFrom(dst, int(length)), via: via})
	}
	return routes, nil
}

// parseLocal4 reads the node's own IPv4 addresses from the text of
// proc/net/fib_trie, which does not say on which netdev they are:
//
//	|-- 10.0.0.5
//	   /32 host LOCAL
func parseLocal4(text string) []netip.Addr {
	var local []netip.Addr
	var last netip.Addr
	for _, line := range lines(text) {
		line = strings.TrimSpace(line)
		if leaf, ok := strings.CutPrefix(line, "|-- "); ok {
			last, _ = netip.ParseAddr(leaf)
		} else if line == "/32 host LOCAL" && last.IsValid() && !last.IsLoopback() {
			local = append(local, last)
		}
	}
	slices.SortFunc(local, netip.Addr.Compare)
	return slices.Compact(local) // the trie is printed once for each table
}

// An address6Of is an IPv6 address of a netdev.
type address6Of struct {
	netdev string
	prefix netip.Prefix
}

// parseLocal6 reads the text of proc/net/if_inet6: address, interface index,
// prefix length, scope and flags, all hexadecimal, and netdev (net/ipv6/addrconf.c
// if6_seq_show). Link-local addresses, which every netdev that is up has, are
// left out, and so is loopback.
func parseLocal6(text string) ([]address6Of, error) {
	var all []address6Of
	for _, line := range lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 {
			return nil, fmt.Errorf("IPv6 address %q: want 6 fields", line)
		}
		addr, err1 := address6(f[0])
		length, err2 := strconv.ParseUint(f[2], 16, 8)
		if err := firstError(err1, err2); err != nil {
			return nil, fmt.Errorf("IPv6 address %q: %w", line, err)
		}
		if !addr.IsLinkLocalUnicast() && !addr.IsLoopback() {
			all = append(all, address6Of{netdev: f[5], prefix: netip.PrefixFrom(addr, int(length))})
		}
	}
	return all, nil
}

// address4 reads the eight digits of an IPv4 address in proc/net/route.
func address4(word string) (netip.Addr, error) {
	n, err := strconv.ParseUint(word, 16, 32)
	if err != nil {
		return netip.Addr{}, err
	}
	var b [4]byte
	// fib_route_seq_show (net/ipv4/fib_trie.c) prints the four bytes as a number of the host, which is a little-endian one.
	binary.LittleEndian.PutUint32(b[:], uint32(n))
	return netip.AddrFrom4(b), nil
}

// address6 reads the 32 digits of an IPv6 address.
func address6(digits string) (netip.Addr, error) {
	var b [16]byte
	if len(digits) != hex.EncodedLen(len(b)) {
		return netip.Addr{}, fmt.Errorf("%q is not 32 hexadecimal digits", digits)
	}
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil {
		return netip.Addr{}, err
	}
	return netip.AddrFrom16(b), nil
}

// bits counts the leading ones of a mask.
func bits(mask netip.Addr) int {
	n := 0
	for _, b := range mask.AsSlice() {
		for ; b&0x80 != 0; b <<= 1 {
			n++
		}
	}
	return n
}

// lines splits a text into lines; an empty text has none.
func lines(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// firstError returns the first that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

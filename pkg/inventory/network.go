package inventory

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// network is what the node's network namespace does with its netdevs.
type network struct {
	fs        *sysfs.FS
	addresses map[string][]string // by netdev
	routes    map[string][]string
	stacked   map[string][]string // uppers by netdev, as far as asked for
}

// readNetwork reads the addresses and routes of the node from proc, which
// captured trees have too. An IPv4 address is found by the route to its
// subnet, since proc lists no IPv4 address with its netdev: one without any
// such route in the main table is not seen.
func readNetwork(fs *sysfs.FS) (*network, error) {
	var text [4]string
	for i, file := range []string{"net/route", "net/ipv6_route", "net/fib_trie", "net/if_inet6"} {
		var err error
		if text[i], err = readInit(fs, file); err != nil {
			return nil, err
		}
	}
	routes4, err1 := parseRoutes4(text[0])
	routes6, err2 := parseRoutes6(text[1])
	local6, err3 := parseLocal6(text[3])
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	n := &network{fs: fs, addresses: map[string][]string{}, routes: map[string][]string{}, stacked: map[string][]string{}}
	n.addRoutes(slices.Concat(routes4, routes6))
	for _, addr := range parseLocal4(text[2]) {
		n.addLocal4(addr, routes4)
	}
	for _, a := range local6 {
		n.addresses[a.netdev] = append(n.addresses[a.netdev], a.prefix.String())
	}
	return n, nil
}

// addRoutes adds routes to those of their netdevs, the default ones first: a
// router may have many thousands.
func (n *network) addRoutes(routes []route) {
	slices.SortStableFunc(routes, func(a, b route) int { return cmp.Compare(a.dst.Bits(), b.dst.Bits()) })
	for _, r := range routes {
		n.routes[r.netdev] = append(n.routes[r.netdev], r.String())
	}
}

// addLocal4 finds the netdevs of an address: those with the narrowest route
// to its subnet that has no gateway.
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

// uses returns what the node does with f's netdevs, by way of the devices
// stacked on them too.
func (n *network) uses(f *device.Function) ([]device.Use, error) {
	var uses []device.Use
	for _, netdev := range f.Children.Net {
		uses = append(uses, n.usesThrough(netdev, netdev)...)
		stack, err := n.stack(f, netdev)
		if err != nil {
			return nil, err
		}
		for _, upper := range stack {
			uses = append(uses, n.usesThrough(netdev, upper)...)
		}
	}
	return uses, nil
}

// usesThrough returns the addresses and routes on carrier as uses of netdev.
func (n *network) usesThrough(netdev, carrier string) []device.Use {
	suffix := ""
	if carrier != netdev {
		suffix = " on " + carrier
	}
	var uses []device.Use
	for _, a := range n.addresses[carrier] {
		uses = append(uses, device.Use{Kind: device.UseAddress, Name: netdev, Detail: a + suffix})
	}
	if routes := n.routes[carrier]; len(routes) > 0 {
		uses = append(uses, device.Use{Kind: device.UseRoute, Name: netdev, Detail: listing(routes) + suffix})
	}
	return uses
}

// stack returns all netdevs above one of f's: its bond, the bridge of that, ...
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

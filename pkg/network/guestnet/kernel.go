package guestnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
)

const (
	// dumpAttempts limits the attempts to read a list that changes during the read.
	dumpAttempts = 5

	lowerUp   = 1 << 16 // IFF_LOWER_UP, include/uapi/linux/if.h
	unicast   = 1       // RTN_UNICAST, include/uapi/linux/rtnetlink.h
	linkScope = 253     // RT_SCOPE_LINK
)

// kernel is a route netlink socket in the network namespace in which it was opened. [Socket] says how long its methods
// take.
type kernel struct{ socket *Socket }

func openKernel(turn *Turn) (*kernel, error) {
	handle, err := netlink.NewHandle(syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	socket, err := NewSocket(handle, turn)
	if err != nil {
		return nil, err
	}
	return &kernel{socket}, nil
}

func (k *kernel) close() { k.socket.Close(func() {}) }

// dump reads a list, and reads it again if it changed during the read.
func dump[T any](ctx context.Context, k *kernel, what string, read func(*netlink.Handle) ([]T, error)) ([]T, error) {
	for attempt := 1; ; attempt++ {
		list, err := Ask(ctx, k.socket, read)
		switch {
		case err == nil:
			return list, nil
		case !errors.Is(err, netlink.ErrDumpInterrupted) || attempt == dumpAttempts:
			return nil, fmt.Errorf("list %s: %w", what, explain(err))
		}
	}
}

// link is the current state of an interface.
type link struct {
	index     int
	name      string
	altNames  []string
	mac       net.HardwareAddr
	permanent net.HardwareAddr // nil if the driver reports none
	mtu       int
	up        bool
	carrier   bool
	pci       string // empty if it belongs to no PCI function
	upon      int    // the interface below this one, 0 for none
}

// String names the interface: "eth0 (02:00:5e:10:00:01)".
func (l *link) String() string {
	if len(l.mac) == 0 {
		return printable(l.name)
	}
	return fmt.Sprintf("%s (%s)", printable(l.name), l.mac)
}

// guidSize is the size of an InfiniBand port's GUID. ipoibSize is the size of an IPoIB interface's address: the queue
// pair and the port's GID, which consists of the subnet's prefix and the GUID (RFC 4391, section 9.1.1).
const (
	guidSize  = 8
	ipoibSize = 20
)

// portGUID returns the GUID of an InfiniBand port's interface, or nil for any other. The interface of a partition on
// top of it has the same GUID, but is not the port's own.
func (l *link) portGUID() net.HardwareAddr {
	if len(l.mac) != ipoibSize || l.upon != 0 {
		return nil
	}
	return l.mac[ipoibSize-guidSize:]
}

// links returns all interfaces except loopback.
func (k *kernel) links(ctx context.Context) ([]link, error) {
	list, err := dump(ctx, k, "interfaces", (*netlink.Handle).LinkList)
	if err != nil {
		return nil, err
	}
	var links []link
	for _, l := range list {
		a := l.Attrs()
		if a.Flags&net.FlagLoopback != 0 {
			continue
		}
		found := link{
			index: a.Index, upon: a.ParentIndex, name: a.Name, altNames: a.AltNames, mac: a.HardwareAddr, permanent: a.PermHWAddr, mtu: a.MTU,
			up: a.Flags&net.FlagUp != 0, carrier: a.RawFlags&lowerUp != 0,
		}
		if a.ParentDevBus == "pci" {
			found.pci = a.ParentDev
		}
		links = append(links, found)
	}
	return links, nil
}

// link returns the interface with an index.
func (k *kernel) link(ctx context.Context, index int) (link, error) {
	links, err := k.links(ctx)
	if err != nil {
		return link{}, err
	}
	i := slices.IndexFunc(links, func(l link) bool { return l.index == index })
	if i < 0 {
		return link{}, fmt.Errorf("interface %d no longer exists", index)
	}
	return links[i], nil
}

// device wraps an index for requests of the library.
func device(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// setName renames an interface. Kernels before 6.2 refuse to rename an interface that is up, so it is taken down if
// necessary.
func setName(handle *netlink.Handle, index int, name string) error {
	err := handle.LinkSetName(device(index), name)
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	if err := handle.LinkSetDown(device(index)); err != nil {
		return fmt.Errorf("take it down: %w", err)
	}
	return handle.LinkSetName(device(index), name)
}

// address is the current state of an interface's address.
type address struct {
	prefix               netip.Prefix
	tentative, duplicate bool
}

// addresses returns an interface's addresses of both families.
func (k *kernel) addresses(ctx context.Context, index int) ([]address, error) {
	list, err := dump(ctx, k, "addresses", func(handle *netlink.Handle) ([]netlink.Addr, error) {
		return handle.AddrList(device(index), netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	var addresses []address
	for _, a := range list {
		if prefix, ok := fromIPNet(a.IPNet); ok {
			// The kernel leaves TENTATIVE set beside DADFAILED, although no detection runs any more.
			duplicate := a.Flags&syscall.IFA_F_DADFAILED != 0
			addresses = append(addresses, address{prefix, a.Flags&syscall.IFA_F_TENTATIVE != 0 && !duplicate, duplicate})
		}
	}
	return addresses, nil
}

func kernelAddress(prefix netip.Prefix) *netlink.Addr { return &netlink.Addr{IPNet: toIPNet(prefix)} }

// fromIPNet returns false if n is not an address with a prefix length.
func fromIPNet(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok && size != 0
}

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// hop is the current state of one hop of a route.
type hop struct {
	route Route
	index int  // the interface
	own   bool // made by the kernel itself
}

// hops returns the unicast routes of all tables. The routes of the local table have other types.
func (k *kernel) hops(ctx context.Context) ([]hop, error) {
	var hops []hop
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := dump(ctx, k, "routes", func(handle *netlink.Handle) ([]netlink.Route, error) {
			// Table 0 is any table. Without the filter, the library returns only the main one.
			return handle.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, err
		}
		for i := range list {
			hops = append(hops, newHops(&list[i])...)
		}
	}
	return hops, nil
}

// newHops returns the hops of a unicast route. A multipath route has several.
func newHops(r *netlink.Route) []hop {
	to, ok := fromIPNet(r.Dst)
	if !ok || r.Type != unicast || r.Tos != 0 {
		return nil
	}
	one := func(index int, gateway net.IP) hop {
		via, _ := netip.AddrFromSlice(gateway)
		return hop{Route{To: to, Via: via.Unmap(), Table: r.Table, Metric: r.Priority}, index, r.Protocol == syscall.RTPROT_KERNEL}
	}
	if len(r.MultiPath) == 0 {
		return []hop{one(r.LinkIndex, r.Gw)}
	}
	hops := make([]hop, len(r.MultiPath))
	for i, n := range r.MultiPath {
		hops[i] = one(n.LinkIndex, n.Gw)
	}
	return hops
}

// kernelRoute returns a route as the kernel takes it. EEXIST says that a route to the same network with the same metric exists.
func kernelRoute(index int, r Route) *netlink.Route {
	route := &netlink.Route{
		LinkIndex: index, Dst: toIPNet(r.To), Table: r.Table, Priority: r.Metric, Protocol: syscall.RTPROT_STATIC, Type: unicast,
	}
	switch {
	case r.Via.IsValid():
		route.Gw = r.Via.AsSlice()
	// Without a gateway the hosts are on the link. IPv6 does not use the scope.
	case r.To.Addr().Is4():
		route.Scope = linkScope
	}
	return route
}

// rules returns the rules that select only by source address.
func (k *kernel) rules(ctx context.Context) ([]Rule, error) {
	list, err := dump(ctx, k, "rules", func(handle *netlink.Handle) ([]netlink.Rule, error) {
		return handle.RuleList(netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	var rules []Rule
	for i := range list {
		r := &list[i]
		from, ok := fromIPNet(r.Src)
		if ok && from.IsSingleIP() && plain(r) {
			rules = append(rules, Rule{From: from.Addr(), Table: r.Table, Priority: r.Priority})
		}
	}
	return rules, nil
}

// plain reports whether a rule has no selector other than its source.
func plain(r *netlink.Rule) bool {
	return r.Dst == nil && r.Mark == 0 && r.Mask == nil && r.Tos == 0 && r.TunID == 0 && r.Goto < 0 && r.IifName == "" && r.OifName == "" &&
		!r.Invert && r.Dport == nil && r.Sport == nil && r.IPProto == 0 && r.UIDRange == nil &&
		r.SuppressPrefixlen < 0 && r.SuppressIfgroup < 0
}

func kernelRule(r Rule) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Priority, rule.Table = r.Priority, r.Table
	rule.Src = toIPNet(netip.PrefixFrom(r.From, r.From.BitLen()))
	return rule
}

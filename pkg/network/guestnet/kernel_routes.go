package guestnet

import (
	"context"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
)

// hop is one way of a route as it is now.
type hop struct {
	Route
	index int  // the interface
	own   bool // made by the kernel itself
}

// hops lists the unicast routes of all tables; those of the local table are of
// other types.
func (k *kernel) hops(ctx context.Context) ([]hop, error) {
	var hops []hop
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := dump(ctx, "routes", func() ([]netlink.Route, error) {
			// Table 0 is any; without the filter the library lists the main one only.
			return k.handle.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, err
		}
		for i := range list {
			hops = append(hops, hopsOf(&list[i])...)
		}
	}
	return hops, nil
}

// hopsOf returns a unicast route's hops, several for a multipath route.
func hopsOf(r *netlink.Route) []hop {
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

// addRoute adds a route; EEXIST says that there is one to the same network
// with the same metric.
func (k *kernel) addRoute(index int, r Route) error {
	route := &netlink.Route{
		LinkIndex: index, Dst: toIPNet(r.To), Table: r.Table, Priority: r.Metric, Protocol: syscall.RTPROT_STATIC, Type: unicast,
	}
	switch {
	case r.Via.IsValid():
		route.Gw = r.Via.AsSlice()
	case r.To.Addr().Is4():
		route.Scope = linkScope
	}
	return k.handle.RouteAdd(route)
}

// rules lists the rules that look at nothing but the source address.
func (k *kernel) rules(ctx context.Context) ([]Rule, error) {
	list, err := dump(ctx, "rules", func() ([]netlink.Rule, error) { return k.handle.RuleList(netlink.FAMILY_ALL) })
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

// plain reports whether a rule has no other selector than its source.
func plain(r *netlink.Rule) bool {
	return r.Dst == nil && r.Mark == 0 && r.Mask == nil && r.Tos == 0 && r.TunID == 0 && r.Goto < 0 && r.IifName == "" && r.OifName == "" &&
		!r.Invert && r.Dport == nil && r.Sport == nil && r.IPProto == 0 && r.UIDRange == nil &&
		r.SuppressPrefixlen < 0 && r.SuppressIfgroup < 0
}

func (k *kernel) addRule(r Rule) error {
	rule := netlink.NewRule()
	rule.Priority, rule.Table = r.Priority, r.Table
	rule.Src = toIPNet(netip.PrefixFrom(r.From, r.From.BitLen()))
	return k.handle.RuleAdd(rule)
}

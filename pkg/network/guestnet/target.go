package guestnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

const (
	mainTable = 254 // RT_TABLE_MAIN, include/uapi/linux/rtnetlink.h
	// metricV6 is the kernel's metric for an IPv6 route without a metric or with 0 (IP6_RT_PRIO_USER). For IPv4 it is
	// 0.
	metricV6 = 1024
	// minMTUv6 is the minimum MTU of a link with IPv6 (RFC 8200, section 5). With a smaller one the kernel removes IPv6
	// from the interface.
	minMTUv6 = 1280
)

// target is a device with its network in the kernel's terms, its interface, and the changes so far.
type target struct {
	device    *Device
	addresses []netip.Prefix
	routes    []Route
	rules     []Rule
	link      link
	result    Interface
}

// newTargets parses the requested networks. One [InputError] has all faults.
func newTargets(devices []Device) ([]*target, error) {
	targets := make([]*target, len(devices))
	names := map[string]*Device{}
	var problems []string
	for i := range devices {
		d := &devices[i]
		targets[i] = &target{device: d}
		if err := targets[i].read(); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", d, err))
		}
		name := d.Network.Interface
		if first := names[name]; first != nil && name != "" {
			problems = append(problems, fmt.Sprintf("%s and %s want the name %q", first, d, name))
		}
		names[name] = d
	}
	if len(problems) > 0 {
		return nil, inputErrorf("%s", strings.Join(problems, "\n"))
	}
	return targets, nil
}

// read sets addresses, routes and rules.
func (t *target) read() error {
	if t.device.MAC == nil && t.device.PortGUID == nil && t.device.PCI == nil {
		return &v1alpha1.InvalidError{Kind: "device", Problems: []v1alpha1.Problem{{Text: "no MAC, port GUID or PCI address is known"}}}
	}
	if err := t.device.Network.Validate(); err != nil {
		return err
	}
	var p problems
	t.readAddresses(&p)
	t.readRoutes(&p)
	return p.err()
}

// problems collects values that are valid parameters, but that the guest's kernel would refuse or misunderstand.
type problems []v1alpha1.Problem

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, v1alpha1.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &v1alpha1.InvalidError{Kind: "network", Problems: p}
}

func (t *target) readAddresses(p *problems) {
	for i, text := range t.device.Network.Addresses {
		path := fmt.Sprintf("addresses[%d]", i)
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			p.add(path, "%v", err) // Validate reported it
			continue
		}
		addr := prefix.Addr()
		switch {
		case addr.Is4In6() || addr.IsMulticast() || addr.IsUnspecified():
			p.add(path, "%s is not an address that an interface can have", text)
		case slices.Contains(t.addresses, prefix):
			p.add(path, "%s appears twice", text)
		case addr.Is6() && t.device.Network.MTU != nil && *t.device.Network.MTU < minMTUv6:
			p.add("mtu", "%d is too small for the IPv6 address %s; want at least %d", *t.device.Network.MTU, text, minMTUv6)
		}
		t.addresses = append(t.addresses, prefix)
	}
}

func (t *target) readRoutes(p *problems) {
	table := mainTable
	if own := t.device.Network.Table; own != nil {
		table = *own
		t.readTable(p, table)
	}
	for i := range t.device.Network.Routes {
		r, err := newRoute(&t.device.Network.Routes[i], table)
		if err != nil {
			p.add(fmt.Sprintf("routes[%d]", i), "%v", err)
			continue
		}
		// For IPv4, the kernel treats it as a route on the link.
		if slices.ContainsFunc(t.addresses, func(a netip.Prefix) bool { return a.Addr() == r.Via }) {
			p.add(fmt.Sprintf("routes[%d].via", i), "%s is the interface's own address", r.Via)
		}
		t.addRoute(r)
	}
}

// readTable adds what a separate table needs: the routes to the networks of the addresses, and the rules.
func (t *target) readTable(p *problems, table int) {
	if len(t.addresses) == 0 {
		p.add("table", "%d is asked for what comes from one of the addresses, and there is none", table)
	}
	for _, a := range t.addresses {
		// Each interface has this network, so the address does not say which table to use.
		if a.Addr().IsLinkLocalUnicast() {
			continue
		}
		t.rules = append(t.rules, Rule{From: a.Addr(), Table: table, Priority: RulePriority})
		if !a.IsSingleIP() {
			t.addRoute(Route{To: a.Masked(), Table: table, Metric: metric(a.Addr(), nil)})
		}
	}
}

// addRoute adds a route unless it exists.
func (t *target) addRoute(r Route) {
	if !slices.Contains(t.routes, r) {
		t.routes = append(t.routes, r)
	}
}

// newRoute parses a valid route.
func newRoute(asked *v1alpha1.GuestRoute, table int) (Route, error) {
	r := Route{Table: table}
	var err error
	if asked.Via != "" {
		if r.Via, err = netip.ParseAddr(asked.Via); err != nil {
			return r, err
		}
	}
	switch {
	case asked.To == v1alpha1.DefaultRoute && r.Via.Is4():
		r.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	case asked.To == v1alpha1.DefaultRoute:
		r.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	default:
		if r.To, err = netip.ParsePrefix(asked.To); err != nil {
			return r, err
		}
	}
	if r.To.Addr().Is4In6() || r.Via.Is4In6() || r.Via.Zone() != "" {
		return r, fmt.Errorf("%s via %s: want plain IPv4 or IPv6, without a zone", asked.To, asked.Via)
	}
	r.Metric = metric(r.To.Addr(), asked.Metric)
	return r, nil
}

// metric returns the metric that the kernel sets for a route of addr's family.
func metric(addr netip.Addr, asked *int) int {
	switch {
	// IPv6 has no metric 0: the kernel takes it for none, and sets IP6_RT_PRIO_USER.
	case asked != nil && (*asked != 0 || addr.Is4()):
		return *asked
	case addr.Is4():
		return 0
	}
	return metricV6
}

package guestnet_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

// Each of two interfaces has its table, so that an answer leaves by the one
// that was asked, and neighbours are reached without the gateway.
func TestTwoInterfacesRouteBySource(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.nic("eth2", macB)
	a := nicOf(macA, v1alpha1.GuestNetwork{
		Addresses: []string{"192.0.2.10/24", "2001:db8::10/64", "fe80::99/64"}, Table: new(100),
		Routes: []v1alpha1.GuestRoute{{To: "default", Via: "192.0.2.1"}, {To: "default", Via: "2001:db8::1"}},
	})
	b := nicOf(macB, v1alpha1.GuestNetwork{
		Addresses: []string{"192.0.2.20/24", "2001:db8::20/64"}, Table: new(2000),
		Routes: []v1alpha1.GuestRoute{{To: "default", Via: "192.0.2.1"}, {To: "default", Via: "2001:db8::1"}},
	})
	report, err := g.configure(a, b)
	if err != nil {
		t.Fatal(err)
	}
	rules := []guestnet.RuleResult{
		{Rule: guestnet.Rule{From: netip.MustParseAddr("192.0.2.10"), Table: 100, Priority: guestnet.RulePriority}, Changed: true},
		{Rule: guestnet.Rule{From: netip.MustParseAddr("2001:db8::10"), Table: 100, Priority: guestnet.RulePriority}, Changed: true},
	}
	if diff := cmp.Diff(rules, report.Interfaces[0].Rules, equalNetip()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	for _, c := range []struct{ from, to, link, via string }{
		{"192.0.2.10", "203.0.113.1", "eth1", "192.0.2.1"},
		{"192.0.2.20", "203.0.113.1", "eth2", "192.0.2.1"},
		{"192.0.2.20", "192.0.2.77", "eth2", ""},
		{"2001:db8::10", "2001:db8:ffff::1", "eth1", "2001:db8::1"},
		{"2001:db8::20", "2001:db8:ffff::1", "eth2", "2001:db8::1"},
		{"2001:db8::20", "2001:db8::77", "eth2", ""},
	} {
		routes, err := g.RouteGetWithOptions(netip.MustParseAddr(c.to).AsSlice(), &netlink.RouteGetOptions{SrcAddr: netip.MustParseAddr(c.from).AsSlice()})
		if err != nil {
			t.Errorf("from %s to %s: %v", c.from, c.to, err)
			continue
		}
		via := ""
		if routes[0].Gw != nil {
			via = routes[0].Gw.String()
		}
		if routes[0].LinkIndex != g.link(c.link).Attrs().Index || via != c.via {
			t.Errorf("from %s to %s goes %v, want by %s via %q", c.from, c.to, routes[0], c.link, c.via)
		}
	}
}

func TestARouteInTheWayIsNamed(t *testing.T) {
	for _, via := range []string{"192.0.2.1", "2001:db8::1"} {
		t.Run(via, func(t *testing.T) {
			g := newGuest(t)
			g.nic("eth0", macB)
			g.nic("eth1", macA)
			gateway := []v1alpha1.GuestRoute{{To: "default", Via: via}}
			if _, err := g.configure(nicOf(macB, v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.20/24", "2001:db8::20/64"}, Routes: gateway})); err != nil {
				t.Fatal(err)
			}
			device := nicOf(macA, v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, Routes: gateway})
			for _, dry := range []bool{true, false} {
				opts := options()
				opts.DryRun = dry
				_, err := g.configureWith(t.Context(), opts, device)
				if err == nil {
					t.Fatalf("dry run %v: no error", dry)
				}
				wantWords(t, err.Error(), "default via "+via, "metric", "table of its own", "eth1")
			}
			if n := strings.Count(g.state(), " "+via+" "); n != 1 {
				t.Errorf("%d routes via %s:\n%s", n, via, g.state())
			}
		})
	}
}

func prefixNet(text string) *net.IPNet {
	p := prefix(text)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

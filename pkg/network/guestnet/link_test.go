package guestnet_test

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

func TestNameThatIsTakenIsRefused(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.nic("eth2", macB)
	_, err := g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "eth2"}))
	if err == nil {
		t.Fatal("no error")
	}
	wantWords(t, err.Error(), `"eth2"`, macB, "device node/"+macA)
	_, err = g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "eth2"}), nicOf(macB, v1alpha1.GuestNetwork{}))
	if err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("another device keeps the name: err = %v", err)
	}
	_, err = g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "n"}), nicOf(macB, v1alpha1.GuestNetwork{Interface: "n"}))
	wantError[*guestnet.InputError](t, err, macA, macB, `"n"`)
	g.must(g.LinkAddAltName(g.link("eth2"), "alias"))
	_, err = g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "alias"}))
	if err == nil || !strings.Contains(err.Error(), "taken by eth2") {
		t.Errorf("an alternative name: err = %v", err)
	}
	_, err = g.configure(nicOf(macA, v1alpha1.GuestNetwork{Interface: "alias"}), nicOf(macB, v1alpha1.GuestNetwork{Interface: "net2"}))
	if err == nil || !strings.Contains(err.Error(), "taken by eth2") {
		t.Errorf("an alternative name, which a rename does not free: err = %v", err)
	}
}

func TestTwoDevicesExchangeTheirNames(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.nic("eth2", macB)
	g.must(g.LinkSetUp(g.link("eth1")))
	a := nicOf(macA, v1alpha1.GuestNetwork{Interface: "eth2"})
	b := nicOf(macB, v1alpha1.GuestNetwork{Interface: "eth1"})
	report, err := g.configure(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]guestnet.Setting[string]{changed("eth1", "eth2"), changed("eth2", "eth1")},
		[]guestnet.Setting[string]{report.Interfaces[0].Name, report.Interfaces[1].Name}); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for name, mac := range map[string]string{"eth2": macA, "eth1": macB} {
		l := g.link(name).Attrs()
		if l.HardwareAddr.String() != mac || l.RawFlags&unix.IFF_UP == 0 {
			t.Errorf("%s is %s, flags %v; want %s, up", name, l.HardwareAddr, l.Flags, mac)
		}
	}
}

func TestConfigureWithoutLink(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.must(g.LinkSetDown(g.link("eth1p")))
	device := nicOf(macA, network())
	opts := options()
	opts.Wait = 10 * time.Millisecond
	report, err := g.configureWith(t.Context(), opts, device)
	wantError[*guestnet.NoLinkError](t, err, "net1", "10ms", "condition LinkUp")
	i := report.Interfaces[0]
	if i.Carrier || len(i.Addresses) != 2 || len(i.Routes) != 4 || !i.Addresses[1].Tentative {
		t.Errorf("report %+v", i)
	}
	opts.NoWaitLink = true
	if _, err := g.configureWith(t.Context(), opts, device); err != nil {
		t.Errorf("told not to wait: %v", err)
	}
	opts = options()
	log := &buffer{}
	opts.Log = slog.New(slog.NewTextHandler(log, nil))
	peer := g.link("net1").Attrs().ParentIndex
	var late sync.WaitGroup
	late.Go(func() {
		if err := log.await(t.Context(), "link of net1"); err != nil {
			t.Errorf("no progress: %v", err)
		}
		if err := g.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: peer}}); err != nil {
			t.Error(err)
		}
	})
	report, err = g.configureWith(t.Context(), opts, device)
	late.Wait()
	if err != nil || !report.Interfaces[0].Carrier || report.Interfaces[0].Addresses[1].Tentative {
		t.Errorf("with a late link: err = %v, report %+v", err, report)
	}
}

// Each of two interfaces has its table, so that an answer leaves by the one
// that was asked, and neighbors are reached without the gateway.
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

func TestRouteInTheWayIsNamed(t *testing.T) {
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
				wantWords(t, err.Error(), "default via "+via, "metric", "or another table", "eth1")
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

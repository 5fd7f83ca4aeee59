package guestnet_test

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

const (
	macA = "02:00:5e:10:00:01"
	macB = "02:00:5e:10:00:02"
)

// network is one with everything in it.
func network() v1alpha1.GuestNetwork {
	return v1alpha1.GuestNetwork{
		Interface: "net1", MTU: new(1400),
		Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"},
		Routes: []v1alpha1.GuestRoute{
			{To: "default", Via: "192.0.2.1", Metric: new(50)},
			{To: "default", Via: "2001:db8::1"},
			{To: "198.51.100.0/24"},
			{To: "2001:db8:1::/48", Via: "fe80::1", Metric: new(7)},
		},
	}
}

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func changed[T any](was, value T) guestnet.Setting[T] {
	return guestnet.Setting[T]{Value: value, Was: &was, Changed: true}
}

func equalNetip() cmp.Option {
	return cmp.Options{
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	}
}

func TestInterfaceBecomesWhatIsAsked(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	report, err := g.configure(nicOf(macA, network()))
	if err != nil {
		t.Fatal(err)
	}
	want := &guestnet.Report{Changed: true, Interfaces: []guestnet.Interface{{
		Claim: "nic", Request: "vf", Device: "node/" + macA, FoundBy: "mac", MAC: macA,
		Name: changed("eth1", "net1"), MTU: changed(1500, 1400), Up: changed(false, true), Carrier: true,
		Addresses: []guestnet.Address{{Address: prefix("192.0.2.10/24"), Changed: true}, {Address: prefix("2001:db8::10/64"), Changed: true}},
		Routes: []guestnet.RouteResult{
			{Route: guestnet.Route{To: prefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.0.2.1"), Table: 254, Metric: 50}, Changed: true},
			{Route: guestnet.Route{To: prefix("::/0"), Via: netip.MustParseAddr("2001:db8::1"), Table: 254, Metric: 1024}, Changed: true},
			{Route: guestnet.Route{To: prefix("198.51.100.0/24"), Table: 254}, Changed: true},
			{Route: guestnet.Route{To: prefix("2001:db8:1::/48"), Via: netip.MustParseAddr("fe80::1"), Table: 254, Metric: 7}, Changed: true},
		},
		Rules:     []guestnet.RuleResult{},
		Unmanaged: guestnet.Unmanaged{Addresses: []netip.Prefix{}, Routes: []guestnet.Route{}, Rules: []guestnet.Rule{}},
	}}}
	if diff := cmp.Diff(want, report, equalNetip()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	wantWords(t, g.state(), "net1 "+macA+" 1400 up", "192.0.2.10/24", "2001:db8::10/64",
		"route 0.0.0.0/0 192.0.2.1", "254 50 static", "route ::/0 2001:db8::1", "route 198.51.100.0/24 <nil>", "route 2001:db8:1::/48 fe80::1")
	addresses, err := g.AddrList(g.link("net1"), netlink.FAMILY_V6)
	g.must(err)
	for _, a := range addresses {
		if a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_NODAD) != 0 && a.IP.IsGlobalUnicast() {
			t.Errorf("%s has flags %#x: its detection was left out or not waited for", a, a.Flags)
		}
	}
}

func TestSecondRunChangesNothing(t *testing.T) {
	for name, table := range map[string]*int{"main table": nil, "low table": new(100), "high table": new(70000)} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t)
			g.nic("eth1", macA)
			device := nicOf(macA, network())
			device.Network.Table = table
			if _, err := g.configure(device); err != nil {
				t.Fatal(err)
			}
			before := g.state()
			report, err := g.configure(device)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, g.state()); diff != "" {
				t.Errorf("the second run changed (-before +after):\n%s", diff)
			}
			var out strings.Builder
			if err := report.WriteJSON(&out); err != nil || strings.Contains(out.String(), `"changed": true`) {
				t.Errorf("err %v, the second report has changes:\n%s", err, &out)
			}
		})
	}
}

func TestDryRunChangesNothingAndForetellsTheRun(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	device := nicOf(macA, network())
	device.Network.Table = new(100)
	before := g.state()
	opts := options()
	opts.DryRun = true
	foretold, err := g.configureWith(t.Context(), opts, device)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, g.state()); diff != "" {
		t.Errorf("the dry run changed (-before +after):\n%s", diff)
	}
	done, err := g.configure(device)
	if err != nil {
		t.Fatal(err)
	}
	foretold.DryRun, foretold.Interfaces[0].Carrier = false, true
	if diff := cmp.Diff(done, foretold, equalNetip()); diff != "" {
		t.Errorf("what was foretold (-done +foretold):\n%s", diff)
	}
}

// The peer answers for the address, as another host would.
func TestAddressOfAnotherHostIsRefusedUntilItIsFree(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.sysctl("ipv6/conf/eth1p/accept_dad", "0")
	g.address("eth1p", "2001:db8::10/64")
	device := nicOf(macA, v1alpha1.GuestNetwork{Addresses: []string{"2001:db8::10/64"}})
	for range 2 {
		_, err := g.configure(device)
		if err == nil {
			t.Fatal("no error")
		}
		wantWords(t, err.Error(), "another host", "2001:db8::10", "eth1")
	}
	taken, err := netlink.ParseAddr("2001:db8::10/64")
	g.must(err)
	g.must(g.AddrDel(g.link("eth1p"), taken))
	report, err := g.configure(device)
	if err != nil || !report.Interfaces[0].Addresses[0].Changed {
		t.Errorf("the address is free: err = %v, report %+v", err, report)
	}
}

func TestConfigureKeepsUnrequestedSettings(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.must(g.LinkSetUp(g.link("eth1")))
	g.nic("eth0", macB)
	g.must(g.LinkSetUp(g.link("eth0")))
	g.must(g.RouteAdd(&netlink.Route{LinkIndex: g.link("eth0").Attrs().Index, Dst: prefixNet("10.0.0.0/8"), Scope: unix.RT_SCOPE_LINK}))
	g.address("eth1", "203.0.113.5/24")
	g.must(g.RouteAdd(&netlink.Route{
		LinkIndex: g.link("eth1").Attrs().Index, Dst: prefixNet("198.51.100.0/24"), Gw: netip.MustParseAddr("203.0.113.1").AsSlice(), Table: 7,
	}))
	rule := netlink.NewRule()
	rule.Src, rule.Table, rule.Priority = prefixNet("192.0.2.10/32"), 7, 5
	g.must(g.RuleAdd(rule))
	report, err := g.configure(nicOf(macA, v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24"}, Table: new(100)}))
	if err != nil {
		t.Fatal(err)
	}
	want := guestnet.Unmanaged{
		Addresses: []netip.Prefix{prefix("203.0.113.5/24")},
		Routes:    []guestnet.Route{{To: prefix("198.51.100.0/24"), Via: netip.MustParseAddr("203.0.113.1"), Table: 7}},
		Rules:     []guestnet.Rule{{From: netip.MustParseAddr("192.0.2.10"), Table: 7, Priority: 5}},
	}
	if diff := cmp.Diff(want, report.Interfaces[0].Unmanaged, equalNetip()); diff != "" {
		t.Errorf("unmanaged (-want +got):\n%s", diff)
	}
	wantWords(t, g.state(), "203.0.113.5/24", "198.51.100.0/24 203.0.113.1", "from 192.0.2.10/32 to all table 7")
}

func TestConfigureExplainsKernelRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		network v1alpha1.GuestNetwork
		want    []string
	}{
		"next hop out of reach": {
			v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24"}, Routes: []v1alpha1.GuestRoute{{To: "default", Via: "203.0.113.1"}}},
			[]string{"add route default via 203.0.113.1", "next hop must be in a network"},
		},
		"no IPv6 on it": {
			v1alpha1.GuestNetwork{Addresses: []string{"2001:db8::10/64"}},
			[]string{"add address 2001:db8::10/64", "IPv6 is disabled"},
		},
		"MTU beyond the driver's": {v1alpha1.GuestNetwork{MTU: new(65535)}, []string{"set MTU 65535", "PF's MTU"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t)
			// A tap takes 65521 at most, which a veth does not bound.
			g.must(g.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, Mode: netlink.TUNTAP_MODE_TAP}))
			g.must(g.LinkSetHardwareAddr(g.link("eth1"), nicOf(macA, c.network).MAC))
			g.sysctl("ipv6/conf/eth1/disable_ipv6", "1")
			report, err := g.configure(nicOf(macA, c.network))
			if err == nil || report == nil {
				t.Fatalf("err = %v, report %v", err, report)
			}
			wantWords(t, err.Error(), append(c.want, "device node/"+macA, "eth1")...)
		})
	}
}

// Without the capability the socket opens and lists, and refuses every change. The test runs itself again, in a process
// that does not have the capability and is in the guest's namespace.
func TestMissingCapabilityIsNamed(t *testing.T) {
	if os.Getenv("WITHOUT_NET_ADMIN") != "" {
		configureWithoutCapability(t)
		return
	}
	g := newGuest(t)
	g.nic("eth1", macA)
	g.must(unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0)) // of this thread, which ends with the test
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestMissingCapabilityIsNamed$")
	cmd.Env = append(os.Environ(), "WITHOUT_NET_ADMIN=1", "NAMESPACE="+g.id)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func configureWithoutCapability(t *testing.T) {
	t.Helper()
	g := &guest{t: t, id: os.Getenv("NAMESPACE")}
	report, err := g.configure(nicOf(macA, network()))
	if err == nil || report == nil || report.Changed {
		t.Fatalf("err = %v, report %+v", err, report)
	}
	wantWords(t, err.Error(), "rename to net1", "NET_ADMIN", "eth1 ("+macA+")")
}

// One device that can't be done does not keep the other from being done.
func TestFailureIsOfOneDevice(t *testing.T) {
	g := newGuest(t)
	g.nic("eth1", macA)
	g.nic("eth2", macB)
	bad := v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24"}, Routes: []v1alpha1.GuestRoute{{To: "default", Via: "203.0.113.1"}}}
	report, err := g.configure(nicOf(macA, bad), nicOf(macB, v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.20/24"}}))
	if err == nil || strings.Contains(err.Error(), macB) {
		t.Errorf("err = %v", err)
	}
	want := []guestnet.Address{{Address: prefix("192.0.2.20/24"), Changed: true}}
	if diff := cmp.Diff(want, report.Interfaces[1].Addresses, equalNetip()); diff != "" {
		t.Errorf("the other's addresses (-want +got):\n%s", diff)
	}
	if len(report.Interfaces[0].Routes) != 0 || len(report.Interfaces[0].Addresses) != 1 {
		t.Errorf("report %+v", report.Interfaces[0])
	}
}

package guestnet

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

func TestTargetRefusesContradictionsFirst(t *testing.T) {
	with := func(mutate func(n *v1alpha1.GuestNetwork)) v1alpha1.GuestNetwork {
		n := v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24"}}
		mutate(&n)
		return n
	}
	named := func(name string) v1alpha1.GuestNetwork { return v1alpha1.GuestNetwork{Interface: name} }
	addressed := func(a ...string) v1alpha1.GuestNetwork { return v1alpha1.GuestNetwork{Addresses: a} }
	routed := func(to, via string) v1alpha1.GuestNetwork {
		return with(func(n *v1alpha1.GuestNetwork) { n.Routes = []v1alpha1.GuestRoute{{To: to, Via: via}} })
	}
	for name, c := range map[string]struct {
		network v1alpha1.GuestNetwork
		want    string
	}{
		"a name that counts up":      {named("net%d"), "'/', ':' and '%'"},
		"a name with an escape":      {named("a\x1b[2J"), "printable"},
		"a name with a zero":         {named("net1\x00x"), "printable"},
		"a name that is no UTF-8":    {named("net\xff"), "printable"},
		"a name with a path":         {named("../net1"), "interface"},
		"a name that is too long":    {named(strings.Repeat("n", 16)), "interface"},
		"a sysctl's name":            {named("all"), `"all"`},
		"an address without a size":  {addressed("192.0.2.10"), "addresses[0]"},
		"an address twice":           {addressed("2001:db8::1/64", "2001:0DB8::1/64"), "addresses[1]: 2001:0DB8::1/64 appears twice"},
		"an IPv4 address in IPv6":    {addressed("::ffff:192.0.2.10/120"), "addresses[0]"},
		"a group's address":          {addressed("ff02::1/64"), "not an address that an interface can have"},
		"no address":                 {addressed("0.0.0.0/0"), "not an address that an interface can have"},
		"IPv6 with a small MTU":      {v1alpha1.GuestNetwork{Addresses: []string{"2001:db8::1/64"}, MTU: new(1279)}, "at least 1280"},
		"a table without an address": {v1alpha1.GuestNetwork{Table: new(100)}, "there is none"},
		"the main table":             {with(func(n *v1alpha1.GuestNetwork) { n.Table = new(254) }), "table"},
		"a next hop with a zone":     {routed("2001:db8::/32", "fe80::1%eth0"), "without a zone"},
		"oneself as next hop":        {routed("default", "192.0.2.10"), "routes[0].via: 192.0.2.10 is the interface's own address"},
		"a route of another family":  {routed("2001:db8::/32", "192.0.2.1"), "family"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newTargets([]Device{{Name: "vf-1", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Network: c.network}})
			if _, ok := errors.AsType[*InputError](err); !ok || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "device vf-1") {
				t.Fatalf("err = %v, want an InputError with %q", err, c.want)
			}
			if strings.ContainsAny(err.Error(), "\x1b\x00") {
				t.Errorf("%q reaches a terminal", err)
			}
		})
	}
	_, err := newTargets([]Device{{Name: "vf-1"}})
	if err == nil || !strings.Contains(err.Error(), "no MAC, port GUID or PCI address") {
		t.Errorf("err = %v", err)
	}
}

// Interfaces of the kernel's own making have no permanent MAC to test with.
func TestPermanentMACFindsAnInterfaceToo(t *testing.T) {
	permanent, current := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	links := []link{{index: 1, name: "eth0", mac: net.HardwareAddr{2, 0, 0, 0, 0, 3}}, {index: 2, name: "eth1", mac: current, permanent: permanent}}
	for _, mac := range []net.HardwareAddr{permanent, current} {
		target := &target{device: &Device{MAC: mac}}
		found, how, err := target.pick(links, t.TempDir())
		if err != nil || found == nil || found.name != "eth1" || how != byMAC {
			t.Errorf("%s: found %v by %q, err %v", mac, found, how, err)
		}
	}
}

// Nor have they 20 bytes of address, as those of IPoIB have.
func TestPortGUIDFindsAnInterface(t *testing.T) {
	guid, other := net.HardwareAddr{2, 0, 0x5e, 0x10, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0x5e, 0x10, 0, 0, 0, 2}
	ipoib := func(index int, name string, guid net.HardwareAddr) link {
		return link{index: index, name: name, mac: slices.Concat(net.HardwareAddr{0, 0, 1, 0x28, 0xfe, 0x80, 0, 0, 0, 0, 0, 0}, guid)}
	}
	partition := ipoib(4, "ib0.8001", guid)
	partition.upon = 3
	ethernet := link{index: 1, name: "eth0", mac: guid[2:]}
	for name, c := range map[string]struct {
		links       []link
		found, fail string
	}{
		"one of several":       {[]link{ethernet, ipoib(2, "ib1", other), ipoib(3, "ib0", guid), partition}, "ib0", ""},
		"none yet":             {[]link{ethernet, ipoib(2, "ib1", other)}, "", ""},
		"two that could be it": {[]link{ipoib(2, "ib1", guid), ipoib(3, "ib0", guid)}, "", "several interfaces could be it"},
	} {
		t.Run(name, func(t *testing.T) {
			target := &target{device: &Device{PortGUID: guid}}
			found, how, err := target.pick(c.links, t.TempDir())
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("err = %v, want %q", err, c.fail)
				}
				return
			}
			if err != nil || (found == nil) != (c.found == "") || found != nil && (found.name != c.found || how != byGUID) {
				t.Errorf("found %v by %q, err %v; want %q", found, how, err, c.found)
			}
		})
	}
}

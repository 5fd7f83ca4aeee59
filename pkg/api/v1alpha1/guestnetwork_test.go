package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

func TestDecodeGuestNetwork(t *testing.T) {
	got, err := v1alpha1.DecodeVF([]byte(head("VFConfig") + `,"network":{"interface":"net1","mtu":9000,
		"addresses":["192.0.2.10/24","2001:db8::10/64"],
		"routes":[{"to":"default","via":"192.0.2.1","metric":100},{"to":"198.51.100.0/24"}],"table":300}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.GuestNetwork{
		Interface: "net1", MTU: new(9000), Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"},
		Routes: []v1alpha1.GuestRoute{{To: "default", Via: "192.0.2.1", Metric: new(100)}, {To: "198.51.100.0/24"}}, Table: new(300),
	}
	if diff := cmp.Diff(want, got.Network); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := got.Weakens(); err != nil {
		t.Errorf("a claim may not say it: %v", err)
	}
	if err := want.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
}

func TestDecodeGuestNetworkRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`{"interface":"a/b"}`:                               `network.interface: "a/b" is not a name of an interface`,
		`{"interface":"sixteen-letters-"}`:                  "network.interface:",
		`{"interface":".."}`:                                "network.interface:",
		`{"interface":"net%d"}`:                             "network.interface:",
		`{"interface":"default"}`:                           "network.interface:",
		`{"mtu":67}`:                                        "network.mtu: 67 is not a number from 68 to 65535",
		`{"mtu":65536}`:                                     "network.mtu:",
		`{"addresses":["192.0.2.10"]}`:                      `network.addresses[0]: "192.0.2.10" is not an address with a prefix length`,
		`{"addresses":["192.0.2.10/24","fe80::1%eth0/64"]}`: "network.addresses[1]:",
		`{"addresses":["192.0.2.10/24","192.0.2.10/24"]}`:   "network.addresses[1]: \"192.0.2.10/24\" is given twice",
		`{"addresses":[` + strings.Repeat(`"192.0.2.10/24",`, 16) + `"192.0.2.11/24"]}`: "network.addresses: 17 entries; at most 16",
		`{"routes":[{"to":"192.0.2.1/24"}]}`:                                            `network.routes[0].to: "192.0.2.1/24" is neither "default" nor a network`,
		`{"routes":[{}]}`:                                                               "network.routes[0].to:",
		`{"routes":[{"to":"default"}]}`:                                                 "network.routes[0].via: missing",
		`{"routes":[{"to":"default","via":"router"}]}`:                                  `network.routes[0].via: "router" is not an address`,
		`{"routes":[{"to":"192.0.2.0/24","via":"fe80::1"}]}`:                            "network.routes[0].via: fe80::1 is not in the same IP family as 192.0.2.0/24",
		`{"routes":[{"to":"192.0.2.0/24","metric":-1}]}`:                                "network.routes[0].metric: -1",
		`{"table":0}`:             "network.table: 0 is a reserved table",
		`{"table":254}`:           "network.table: 254",
		`{"gateway":"192.0.2.1"}`: "network.gateway: no such field",
		`{"routes":[{"to":"192.0.2.0/24","dev":"eth0"}]}`:      "network.routes[0].dev: no such field",
		`{"addressPool":"a/b"}`:                                `network.addressPool: "a/b" is not a name of a pool`,
		`{"addressPool":"a","addresses":["192.0.2.10/24"]}`:    "network.addresses: given beside addressPool: a",
		`{"addresses":"192.0.2.10/24"}`:                        "network.addresses: ",
		`{"routes":[{"to":"0.0.0.0/0","via":"192.0.2.1"},{}]}`: "network.routes[1].to:",
	} {
		t.Run(in, func(t *testing.T) {
			_, err := v1alpha1.DecodeVF([]byte(head("VFConfig") + `,"network":` + in + `}`))
			if err == nil || !strings.Contains(withoutLines(err), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}

// TestPoolsIPAMIsThePlugins: it goes to the plugin as it was written.
func TestPoolsIPAMIsThePlugins(t *testing.T) {
	c, err := v1alpha1.DecodeNodeConfig([]byte(nodeHead + `
addressPools:
- name: tenants
  ipam: {type: host-local, ranges: [[{subnet: 192.0.2.0/24}]], routes: [{dst: 0.0.0.0/0}], ours: {not: null}}
- {name: old, cniVersion: 0.4.0, ipam: {type: whereabouts}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/opt/cni/bin"}, c.CNIBinDirs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, want := range []string{
		`{"cniVersion":"1.0.0","ipam":{"ours":{"not":null},"ranges":[[{"subnet":"192.0.2.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}],"type":"host-local"},"name":"kata-vfio-tenants"}`,
		`{"cniVersion":"0.4.0","ipam":{"type":"whereabouts"},"name":"kata-vfio-old"}`,
	} {
		got, err := c.AddressPools[i].NetworkConfig()
		if err != nil || string(got) != want {
			t.Errorf("the plugin reads %s, %v, want %s", got, err, want)
		}
	}
	if plugin := c.AddressPools[1].Plugin(); plugin != "whereabouts" {
		t.Errorf("the plugin is %q", plugin)
	}
}

func TestDecodeAddressPoolsRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`addressPools: [{ipam: {type: a}}]`:                                      `addressPools[0].name: "" is not a name of a pool`,
		`addressPools: [{name: A, ipam: {type: a}}]`:                             `addressPools[0].name: "A" is not a name`,
		`addressPools: [{name: a, ipam: {type: a}}, {name: a, ipam: {type: b}}]`: `addressPools[1].name: "a" is the name of addressPools[0] too`,
		`addressPools: [{name: a}]`:                                              "addressPools[0].ipam: missing",
		`addressPools: [{name: a, ipam: null}]`:                                  "addressPools[0].ipam: missing",
		`addressPools: [{name: a, ipam: host-local}]`:                            `addressPools[0].ipam: "host-local" is not an object`,
		`addressPools: [{name: a, ipam: []}]`:                                    "addressPools[0].ipam: [] is not an object",
		`addressPools: [{name: a, ipam: {}}]`:                                    `addressPools[0].ipam.type: "" is not a name of a plugin's binary`,
		`addressPools: [{name: a, ipam: {type: 7}}]`:                             "addressPools[0].ipam.type:",
		`addressPools: [{name: a, ipam: {type: ../../bin/sh}}]`:                  "addressPools[0].ipam.type:",
		`addressPools: [{name: a, ipam: {type: ..}}]`:                            "addressPools[0].ipam.type:",
		`addressPools: [{name: a, cniVersion: "2.0.0", ipam: {type: a}}]`:        `addressPools[0].cniVersion: "2.0.0" is not one of 0.3.1, 0.4.0, 1.0.0, 1.1.0`,
		`addressPools: [{name: a, ipam: {type: a}, capabilities: {ips: true}}]`:  "addressPools[0].capabilities: no such field",
		`cniBinDirs: []`:                "cniBinDirs: the list is empty",
		`cniBinDirs: [bin]`:             `cniBinDirs[0]: "bin" is not an absolute path`,
		`cniBinDirs: ["/a:/b"]`:         "cniBinDirs[0]:",
		`cniBinDirs: [/opt/cni/bin, 7]`: "cniBinDirs[1]: 7 is not a string",
	} {
		_, err := v1alpha1.DecodeNodeConfig([]byte(nodeHead + in + "\n"))
		if err == nil || !strings.Contains(withoutLines(err), want) {
			t.Errorf("%s: error %v, want %q", in, err, want)
		}
	}
}

// TestGuestNetworkPoolPrecedence: the class's pool takes precedence over the claim's.
func TestGuestNetworkPoolPrecedence(t *testing.T) {
	decode := func(network string) *v1alpha1.VFConfig {
		t.Helper()
		c, err := v1alpha1.DecodeVF([]byte(head("VFConfig") + `,"network":` + network + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	class := decode(`{"addressPool":"tenants","mtu":9000}`)
	if err := class.Weakens(); err == nil || !strings.Contains(withoutLines(err), "network.addressPool: tenants") {
		t.Errorf("a claim may name a pool: %v", err)
	}
	for in, want := range map[string]string{
		`{"interface":"net1"}`:            `{"interface":"net1","addressPool":"tenants"}`,
		`{"addressPool":"other"}`:         `{"addressPool":"other"}`,
		`{"addresses":["192.0.2.10/24"]}`: `network.addresses: given beside addressPool: tenants`,
	} {
		settled := *class
		settled.Overlay(decode(in))
		if err := settled.Validate(); err != nil {
			if !strings.Contains(withoutLines(err), want) {
				t.Errorf("%s: error %v, want %q", in, err, want)
			}
			continue
		}
		if got, err := json.Marshal(settled.Network); err != nil || string(got) != want {
			t.Errorf("%s over the class's is %s, %v, want %s", in, got, err, want)
		}
	}
	if class.Network.AddressPool != "tenants" || *class.Network.MTU != 9000 {
		t.Errorf("the class's own network has become %+v", class.Network)
	}
	plain := decode(`{"mtu":1400}`)
	plain.Overlay(&v1alpha1.VFConfig{MAC: "02:00:5e:10:00:01"})
	if plain.Network.AddressPool != "" || *plain.Network.MTU != 1400 {
		t.Errorf("without a pool: %+v", plain.Network)
	}
}

// TestPoolIsNotTheGuests: the guest gets addresses.
func TestPoolIsNotTheGuests(t *testing.T) {
	n := v1alpha1.GuestNetwork{AddressPool: "tenants"}
	if err := n.Validate(); err == nil || !strings.Contains(withoutLines(err), "list addresses") {
		t.Errorf("Validate = %v", err)
	}
}

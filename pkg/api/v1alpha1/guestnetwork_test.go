package v1alpha1_test

import (
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
		`{"interface":"a/b"}`:                               `network.interface: "a/b" is no name of an interface`,
		`{"interface":"sixteen-letters-"}`:                  "network.interface:",
		`{"interface":".."}`:                                "network.interface:",
		`{"interface":"net%d"}`:                             "network.interface:",
		`{"interface":"default"}`:                           "network.interface:",
		`{"mtu":67}`:                                        "network.mtu: 67 is not a number from 68 to 65535",
		`{"mtu":65536}`:                                     "network.mtu:",
		`{"addresses":["192.0.2.10"]}`:                      `network.addresses[0]: "192.0.2.10" is no address with a prefix length`,
		`{"addresses":["192.0.2.10/24","fe80::1%eth0/64"]}`: "network.addresses[1]:",
		`{"addresses":["192.0.2.10/24","192.0.2.10/24"]}`:   "network.addresses[1]: \"192.0.2.10/24\" is given twice",
		`{"addresses":[` + strings.Repeat(`"192.0.2.10/24",`, 16) + `"192.0.2.11/24"]}`: "network.addresses: 17 entries; at most 16",
		`{"routes":[{"to":"192.0.2.1/24"}]}`:                                            `network.routes[0].to: "192.0.2.1/24" is neither "default" nor a network`,
		`{"routes":[{}]}`:                                                               "network.routes[0].to:",
		`{"routes":[{"to":"default"}]}`:                                                 "network.routes[0].via: missing",
		`{"routes":[{"to":"default","via":"router"}]}`:                                  `network.routes[0].via: "router" is no address`,
		`{"routes":[{"to":"192.0.2.0/24","via":"fe80::1"}]}`:                            "network.routes[0].via: fe80::1 is of another family",
		`{"routes":[{"to":"192.0.2.0/24","metric":-1}]}`:                                "network.routes[0].metric: -1",
		`{"table":0}`:             "network.table: 0 is no table of one's own",
		`{"table":254}`:           "network.table: 254",
		`{"gateway":"192.0.2.1"}`: "network.gateway: no such field",
		`{"routes":[{"to":"192.0.2.0/24","dev":"eth0"}]}`:      "network.routes[0].dev: no such field",
		`{"addressPool":"a/b"}`:                                `network.addressPool: "a/b" is no name of a pool`,
		`{"addressPool":"a","addresses":["192.0.2.10/24"]}`:    "network.addresses: given beside addressPool: a",
		`{"addresses":"192.0.2.10/24"}`:                        "network.addresses: ",
		`{"routes":[{"to":"0.0.0.0/0","via":"192.0.2.1"},{}]}`: "network.routes[1].to:",
	} {
		t.Run(in, func(t *testing.T) {
			_, err := v1alpha1.DecodeVF([]byte(head("VFConfig") + `,"network":` + in + `}`))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}

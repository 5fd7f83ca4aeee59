package link

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
)

// The kernel knows the loopback address of whatever namespace the test is in.
func TestAddressesOfTheKernel(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	want, err := lo.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	all, err := NewRtnetlink("/proc").Addresses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range want {
		p := netip.MustParsePrefix(a.String())
		if p.Addr().Is4() && !slices.Contains(all, Address{Interface: lo.Index, Prefix: p}) {
			t.Errorf("%v of lo is not among %v", p, all)
		}
	}
}

// addressMessage is what the kernel says of an address: struct ifaddrmsg and attributes.
func addressMessage(bits byte, index uint32, attributes ...[]byte) []byte {
	m := []byte{2, bits, 0x80, 253, 0, 0, 0, 0}
	binary.NativeEndian.PutUint32(m[4:], index)
	for _, a := range attributes {
		m = append(m, a...)
	}
	return m
}

func attribute(kind uint16, value ...byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	return append(binary.NativeEndian.AppendUint16(a, kind), value...)
}

func TestParseAddresses(t *testing.T) {
	const peer, own = 1, 2
	all, err := parseAddresses([][]byte{
		addressMessage(32, 3, attribute(peer, 10, 0, 0, 5), attribute(own, 10, 0, 0, 5)),
		addressMessage(31, 70000, attribute(own, 10, 1, 0, 0), attribute(peer, 10, 1, 0, 1)),
	})
	want := []Address{{3, netip.MustParsePrefix("10.0.0.5/32")}, {70000, netip.MustParsePrefix("10.1.0.0/31")}}
	if err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v; want %v", all, err, want)
	}
	for name, message := range map[string][]byte{
		"short":             {2, 32},
		"without one":       addressMessage(32, 3, attribute(peer, 10, 0, 0, 5)),
		"too long a mask":   addressMessage(33, 3, attribute(own, 10, 0, 0, 5)),
		"of another family": addressMessage(32, 3, attribute(own, make([]byte, 16)...)),
	} {
		if all, err := parseAddresses([][]byte{message}); err == nil {
			t.Errorf("%s: %v", name, all)
		}
	}
}

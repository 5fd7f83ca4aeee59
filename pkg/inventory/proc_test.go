package inventory

import (
	"strings"
	"testing"
)

func TestProcParsersRefuse(t *testing.T) {
	const zero = "00000000000000000000000000000000"
	tests := []struct {
		name  string
		parse func(string) error
		bad   []string
	}{
		{
			"proc/net/route",
			func(text string) error { _, err := parseRoutes4("title\n" + text); return err },
			[]string{"eth0 0 0", "eth0 x 0 0 0 0 0 0", "eth0 0 x 0 0 0 0 0", "eth0 0 0 x 0 0 0 0", "eth0 0 0 0 0 0 0 x", "eth0 100000000 0 0 0 0 0 0"},
		},
		{
			"proc/net/ipv6_route",
			func(text string) error { _, err := parseRoutes6(text); return err },
			[]string{"fd 40", zero + " 40 " + zero + " 0 " + zero + " 0 0 0 flags eth0", "xd" + zero[2:] + " 40 " + zero + " 0 " + zero + " 0 0 0 0 eth0"},
		},
		{
			"proc/net/if_inet6",
			func(text string) error { _, err := parseLocal6(text); return err },
			[]string{zero, zero + " 0 x 0 0 eth0", zero[1:] + " 0 0 0 0 eth0"},
		},
		{
			"mountinfo",
			func(text string) error { _, err := parseMount(text); return err },
			[]string{"", "22 1 0:1 / / rw", "22 1 0:1 / - ext4 /dev/sda rw", "22 1 0:1 / / rw - ext4"},
		},
		{
			"reserved_regions",
			func(text string) error { _, err := parseRegion(text); return err },
			[]string{"", "0x0 0x1", "0x0 one msi", "zero 0x1 msi"},
		},
	}
	for _, tt := range tests {
		for _, text := range tt.bad {
			if err := tt.parse(text); err == nil {
				t.Errorf("%s: %q was read without an error", tt.name, text)
			}
		}
	}
}

func TestParseMount(t *testing.T) {
	m, err := parseMount(`36 35 98:0 /mnt1 /a\040b\134c rw,noatime master:1 - ext3 /dev/x\011y rw`)
	if err != nil || m != (mount{number: "98:0", point: `/a b\c`, source: "/dev/x\ty"}) {
		t.Errorf("%+v, %v", m, err)
	}
}

// FuzzProc feeds all readers of proc: whatever a kernel or a captured tree
// holds, they return.
func FuzzProc(f *testing.F) {
	f.Add("Iface\neth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
	f.Add("fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0\n")
	f.Add("fd000000000000000000000000000002 04 40 00 82     eth0\n")
	f.Add("  |-- 192.0.2.2\n   /32 host LOCAL\n")
	f.Add("36 35 98:0 / /mnt rw - ext3 /dev/root rw\n")
	f.Add("Filename Type\n/dev/sda2 partition 1 0 -2\n")
	f.Fuzz(func(t *testing.T, text string) {
		routes4, _ := parseRoutes4(text)
		routes6, _ := parseRoutes6(text)
		for _, r := range append(routes4, routes6...) {
			if r.netdev == "" || r.String() == "" {
				t.Errorf("route %+v", r)
			}
		}
		for _, a := range parseLocal4(text) {
			if !a.Is4() && !a.Is6() || a.IsLoopback() {
				t.Errorf("address %v", a)
			}
		}
		local6, _ := parseLocal6(text)
		for _, a := range local6 {
			if a.netdev == "" || a.prefix.Addr().IsLinkLocalUnicast() {
				t.Errorf("address %+v", a)
			}
		}
		for _, line := range lines(text) {
			if m, err := parseMount(line); err == nil && (m.number == "" || strings.Contains(m.number, " ")) {
				t.Errorf("mount %+v of %q", m, line)
			}
			_, _ = parseRegion(line)
		}
		parseSwaps(text)
	})
}

package isolation_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// switchedPair is a switch with two GPUs behind it, each alone in its group, and a
// third behind a root port of its own.
func switchedPair(left, right edit) *device.Snapshot {
	return node(
		port(rp, 1), port("0000:00:02.0", 7),
		switchPort("0000:21:00.0", 2, pci.UpstreamPort, under(rp), noACS),
		switchPort("0000:22:00.0", 3, pci.DownstreamPort, under(rp, "0000:21:00.0"), left),
		switchPort("0000:22:01.0", 4, pci.DownstreamPort, under(rp, "0000:21:00.0"), right),
		gpu("0000:23:00.0", 5, under(rp, "0000:21:00.0", "0000:22:00.0")),
		gpu("0000:24:00.0", 6, under(rp, "0000:21:00.0", "0000:22:01.0")),
		gpu("0000:30:00.0", 8, under("0000:00:02.0")),
	)
}

// meetings judges a node whose functions the tenants have, as lines.
func sharedDomains(t testing.TB, s *device.Snapshot, tenants map[string]string, bypassesOf func(*device.Snapshot, *device.Function) []isolation.Bypass) []string {
	t.Helper()
	var held []isolation.Assigned
	var bypasses []isolation.Bypass
	for i := range s.Functions {
		f := &s.Functions[i]
		if tenant, ok := tenants[f.Address.String()]; ok {
			held = append(held, isolation.Assigned{Function: f, Tenants: []string{tenant}})
			bypasses = append(bypasses, bypassesOf(s, f)...)
		}
	}
	var lines []string
	for _, m := range isolation.SharedDomains(held, bypasses) {
		line := fmt.Sprintf("%s %v", m.Domain, m.Tenants)
		for _, l := range m.Bypasses {
			line += fmt.Sprintf(" %s@%s=%s", l.From, l.At, l.State)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestMeetings(t *testing.T) {
	full, off := acs(fullACS, fullACS), acs(fullACS, pci.ACSSourceValidation)
	two := map[string]string{"0000:23:00.0": "a", "0000:24:00.0": "b", "0000:30:00.0": "c"}
	one := map[string]string{"0000:23:00.0": "a", "0000:24:00.0": "a", "0000:30:00.0": "c"}
	sw := "switch or bridge 0000:21:00.0 [a b]"
	dual := func(state edit, second int) *device.Snapshot {
		return node(port(rp, 1), nic("0000:21:00.0", 2, under(rp), state), nic("0000:21:00.1", second, under(rp), state))
	}
	ports := map[string]string{"0000:21:00.0": "a", "0000:21:00.1": "b"}
	for _, c := range []struct {
		name    string
		node    *device.Snapshot
		tenants map[string]string
		want    []string
	}{
		{"all redirect", switchedPair(full, full), two, nil},
		{"one way", switchedPair(off, full), two, []string{sw + " 0000:23:00.0@0000:22:00.0=off"}},
		{"both ways", switchedPair(off, off), two, []string{sw + " 0000:23:00.0@0000:22:00.0=off 0000:24:00.0@0000:22:01.0=off"}},
		{"one tenant has both", switchedPair(off, off), one, nil},
		{"nobody else's", switchedPair(off, off), map[string]string{"0000:23:00.0": "a"}, nil},
		{"no capability, but the kernel vouches", switchedPair(noACS, noACS), two, nil},
		{"not readable", switchedPair(truncated, full), two, []string{sw + " 0000:23:00.0@0000:22:00.0=unknown"}},
		{"header only", switchedPair(full, func(f *device.Function) { truncated(f); conventional(f) }), two, []string{sw + " 0000:24:00.0@0000:22:01.0=unknown"}},
		{
			"a root port that could redirect", node(
				port(rp, 1, off), port("0000:00:02.0", 7), gpu("0000:23:00.0", 5, under(rp)), gpu("0000:30:00.0", 8, under("0000:00:02.0"))),
			map[string]string{"0000:23:00.0": "a", "0000:30:00.0": "b"},
			[]string{"root complex pci0000:00 [a b] 0000:23:00.0@" + rp + "=off"},
		},
		{
			"root ports without ACS are apart to the kernel", node(
				port(rp, 1, noACS), port("0000:00:02.0", 7, noACS), gpu("0000:23:00.0", 1, under(rp)), gpu("0000:30:00.0", 7, under("0000:00:02.0"))),
			map[string]string{"0000:23:00.0": "a", "0000:30:00.0": "b"},
			nil,
		},
		{
			"a shared conventional bus", node(port(rp, 1), port("0000:21:00.0", 2, under(rp), express(pci.PCIeToPCI)),
				gpu("0000:22:00.0", 2, under(rp, "0000:21:00.0"), conventional), gpu("0000:22:01.0", 2, under(rp, "0000:21:00.0"), conventional)),
			map[string]string{"0000:22:00.0": "a", "0000:22:01.0": "b"},
			[]string{"switch or bridge 0000:21:00.0 [a b] 0000:22:00.0@0000:21:00.0=absent 0000:22:01.0@0000:21:00.0=absent"},
		},
		{"functions that the kernel keeps apart", dual(noACS, 3), ports, nil},
		{"functions of one group", dual(noACS, 2), ports, []string{"device 0000:21:00.0 [a b] 0000:21:00.0@0000:21:00.0=absent 0000:21:00.1@0000:21:00.1=absent"}},
		{"functions with ACS off", dual(off, 3), ports, []string{"device 0000:21:00.0 [a b] 0000:21:00.0@0000:21:00.0=off 0000:21:00.1@0000:21:00.1=off"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, sharedDomains(t, c.node, c.tenants, isolation.Bypasses)); diff != "" {
				t.Errorf("meetings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTranslatedRequestsMeet(t *testing.T) {
	direct := acs(0x5f, fullACS|pci.ACSDirectTranslated)
	two := map[string]string{"0000:23:00.0": "a", "0000:24:00.0": "b"}
	s := switchedPair(direct, direct)
	if got := sharedDomains(t, s, two, isolation.TranslatedBypasses); got != nil {
		t.Errorf("without ATS: shared domains are %v, want none", got)
	}
	f, _ := s.Function(addr(t, "0000:23:00.0"))
	ats(true)(f)
	want := []string{"switch or bridge 0000:21:00.0 [a b] 0000:23:00.0@0000:22:00.0=off"}
	if diff := cmp.Diff(want, sharedDomains(t, s, two, isolation.TranslatedBypasses)); diff != "" {
		t.Errorf("with ATS (-want +got):\n%s", diff)
	}
}

// TestSharedDomainsOfManyAreOne: all functions of a large node leak into one switch, each another tenant's, which are eight million
// pairs, and one shared domain.
func TestSharedDomainsOfManyAreOne(t *testing.T) {
	s, tenants := switchOf(4096)
	if got := sharedDomains(t, s, tenants, isolation.Bypasses); len(got) != 1 {
		t.Fatalf("%d shared domains, want 1", len(got))
	}
}

// BenchmarkSharedDomains shows how the time grows with the functions below one switch: sixteen times as many may take some twenty
// times as long; pair by pair they would take 256 times. With -short there are few.
func BenchmarkSharedDomains(b *testing.B) {
	counts := []int{256, 4096}
	if testing.Short() {
		counts = []int{64}
	}
	for _, n := range counts {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, tenants := switchOf(n)
			for b.Loop() {
				sharedDomains(b, s, tenants, isolation.Bypasses)
			}
		})
	}
}

// switchOf has n functions below one switch without ACS, each another tenant's.
func switchOf(n int) (*device.Snapshot, map[string]string) {
	fns := []device.Function{port(rp, 1), switchPort("0000:21:00.0", 2, pci.UpstreamPort, under(rp), noACS)}
	tenants := map[string]string{}
	for i := range n {
		down := fmt.Sprintf("0001:%02x:%02x.%x", i>>8, i>>3&0x1f, i&7)
		f := fmt.Sprintf("0002:%02x:%02x.%x", i>>8, i>>3&0x1f, i&7)
		fns = append(fns, switchPort(down, 10+2*i, pci.DownstreamPort, under(rp, "0000:21:00.0"), acs(fullACS, 0)),
			gpu(f, 11+2*i, under(rp, "0000:21:00.0", down)))
		tenants[f] = f
	}
	return node(fns...), tenants
}

func TestACSNamesAreLspcis(t *testing.T) {
	want := "SrcValid, TransBlk, ReqRedir, CmpltRedir, UpstreamFwd, EgressCtrl, DirectTrans"
	if got := isolation.ACSNames(0x7f); got != want {
		t.Errorf("ACSNames: %s, want %s", got, want)
	}
	if got := isolation.SetACS(addr(t, rp), fullACS); got != "setpci -s "+rp+" ECAP_ACS+6.w=001d" {
		t.Error(got)
	}
}

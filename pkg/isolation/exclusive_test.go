package isolation_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func onNUMA(n int) edit { return func(f *device.Function) { f.NUMANode = &n } }

func onRoot(name string) edit { return func(f *device.Function) { f.Root = name } }

func vf(pf string) edit {
	return func(f *device.Function) {
		a, err := pci.ParseAddress(pf)
		if err != nil {
			panic(err)
		}
		f.VF = &device.VF{PF: a}
	}
}

// cascade is a node with a switch (at 21) that has a GPU and another switch (at 24) with two GPUs below it, and functions below no switch.
func cascade() *device.Snapshot {
	outer, inner := under("0000:20:01.0", "0000:21:00.0", "0000:22:00.0"), under("0000:20:01.0", "0000:21:00.0", "0000:22:01.0", "0000:24:00.0", "0000:25:00.0")
	other := under("0000:20:01.0", "0000:21:00.0", "0000:22:01.0", "0000:24:00.0", "0000:25:01.0")
	return node(
		port("0000:20:01.0", 1), switchPort("0000:21:00.0", 2, pci.UpstreamPort, under("0000:20:01.0")),
		switchPort("0000:22:00.0", 3, pci.DownstreamPort, under("0000:20:01.0", "0000:21:00.0")),
		switchPort("0000:22:01.0", 4, pci.DownstreamPort, under("0000:20:01.0", "0000:21:00.0")),
		gpu("0000:23:00.0", 5, outer, onNUMA(1)), audio("0000:23:00.1", 5, outer),
		switchPort("0000:24:00.0", 6, pci.UpstreamPort, under("0000:20:01.0", "0000:21:00.0", "0000:22:01.0")),
		switchPort("0000:25:00.0", 7, pci.DownstreamPort, under("0000:20:01.0", "0000:21:00.0", "0000:22:01.0", "0000:24:00.0")),
		switchPort("0000:25:01.0", 8, pci.DownstreamPort, under("0000:20:01.0", "0000:21:00.0", "0000:22:01.0", "0000:24:00.0")),
		gpu("0000:26:00.0", 9, inner, onNUMA(0)), gpu("0000:27:00.0", 10, other, onNUMA(0)),
	)
}

// plain is a node without switches: a card with ARI, a GPU with VFs, a NIC of two ports, an integrated GPU, and NVSwitches.
func plain() *device.Snapshot {
	below := func(root string) edit { return under("0000:" + root) }
	return node(
		port("0000:30:01.0", 1), port("0000:40:01.0", 2), port("0000:50:01.0", 3), port("0000:60:01.0", 4),
		// The ninth function of a device with ARI has device number 1.
		nic("0000:31:00.0", 10, below("30:01.0")), nic("0000:31:01.0", 11, below("30:01.0")),
		nic("0000:41:00.0", 12, below("40:01.0"), pfOf("0000:41:01.0")), nic("0000:41:00.1", 13, below("40:01.0"), pfOf("0000:41:02.0")),
		nic("0000:41:01.0", 14, below("40:01.0"), vf("0000:41:00.0")), nic("0000:41:02.0", 15, below("40:01.0"), vf("0000:41:00.1")),
		gpu("0000:51:00.0", 16, below("50:01.0"), pfOf("0000:51:00.4"), ids(0x1002, 0x74a1)),
		gpu("0000:51:00.4", 17, below("50:01.0"), vf("0000:51:00.0"), ids(0x1002, 0x74b9)),
		gpu("0000:00:02.0", 18, express(pci.RCEndpoint), ids(0x8086, 0x56c0)),
		function("0000:61:00.0", 0x068000, 19, below("60:01.0")),
		gpu("0000:70:00.0", 20, under("0000:6f:00.0"), vf("0000:6f:00.3"), onRoot("pci0000:6f")),
		nic("0000:80:00.0", 21, express(pci.RCEndpoint), onRoot("pci0000:80"), onNUMA(2)),
	)
}

// TestDomainAround names the domain of each kind around a function; "-" is none.
func TestDomainAround(t *testing.T) {
	for name, tt := range map[string]struct {
		node     *device.Snapshot
		function string
		// want are the names by kind, the smallest kind first.
		want []string
	}{
		"GPU below a switch":              {cascade(), "0000:23:00.0", []string{"0000:23:00.0", "0000:23:00.0", "0000:21:00.0", "0000:20:01.0", "1", "", "10de"}},
		"its audio function":              {cascade(), "0000:23:00.1", []string{"0000:23:00.0", "0000:23:00.1", "0000:21:00.0", "0000:20:01.0", "unknown", "", "-"}},
		"GPU below two switches":          {cascade(), "0000:26:00.0", []string{"0000:26:00.0", "0000:26:00.0", "0000:24:00.0", "0000:20:01.0", "0", "", "10de"}},
		"port of the inner switch":        {cascade(), "0000:25:00.0", []string{"0000:25:00.0", "0000:25:00.0", "0000:24:00.0", "0000:20:01.0", "unknown", "", "-"}},
		"inner switch":                    {cascade(), "0000:24:00.0", []string{"0000:24:00.0", "0000:24:00.0", "0000:21:00.0", "0000:20:01.0", "unknown", "", "-"}},
		"root port":                       {cascade(), "0000:20:01.0", []string{"0000:20:01.0", "0000:20:01.0", "-", "pci0000:00", "unknown", "", "-"}},
		"NIC below a root port":           {plain(), "0000:31:00.0", []string{"0000:31:00.0", "0000:31:00.0", "-", "0000:30:01.0", "unknown", "", "-"}},
		"ninth function of a card":        {plain(), "0000:31:01.0", []string{"0000:31:00.0", "0000:31:01.0", "-", "0000:30:01.0", "unknown", "", "-"}},
		"second port of a NIC":            {plain(), "0000:41:00.1", []string{"0000:41:00.0", "0000:41:00.1", "-", "0000:40:01.0", "unknown", "", "-"}},
		"VF of the first port":            {plain(), "0000:41:01.0", []string{"0000:41:00.0", "0000:41:00.0", "-", "0000:40:01.0", "unknown", "", "-"}},
		"VF of the second port":           {plain(), "0000:41:02.0", []string{"0000:41:00.0", "0000:41:00.1", "-", "0000:40:01.0", "unknown", "", "-"}},
		"GPU of another vendor":           {plain(), "0000:51:00.0", []string{"0000:51:00.0", "0000:51:00.0", "-", "0000:50:01.0", "unknown", "", "1002"}},
		"VF of a GPU":                     {plain(), "0000:51:00.4", []string{"0000:51:00.0", "0000:51:00.0", "-", "0000:50:01.0", "unknown", "", "1002"}},
		"VF whose PF is not on the bus":   {plain(), "0000:70:00.0", []string{"0000:6f:00.0", "0000:6f:00.3", "-", "0000:6f:00.0", "unknown", "", "10de"}},
		"GPU that is in the root complex": {plain(), "0000:00:02.0", []string{"0000:00:02.0", "0000:00:02.0", "-", "pci0000:00", "unknown", "", "8086"}},
		"NIC in another root complex":     {plain(), "0000:80:00.0", []string{"0000:80:00.0", "0000:80:00.0", "-", "pci0000:80", "2", "", "-"}},
		"NVSwitch":                        {plain(), "0000:61:00.0", []string{"0000:61:00.0", "0000:61:00.0", "-", "0000:60:01.0", "unknown", "", "10de"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, ok := tt.node.Function(addr(t, tt.function))
			if !ok {
				t.Fatalf("the node has no %s, want it", tt.function)
			}
			var got []string
			for _, kind := range isolation.DomainKinds() {
				d, ok := isolation.DomainAround(tt.node, f, kind)
				switch {
				case !ok && d != isolation.ExclusiveDomain{}:
					t.Errorf("DomainAround %s = %+v, false; want the zero value", kind, d)
				case !ok:
					got = append(got, "-")
				case d.Kind != kind:
					t.Errorf("DomainAround %s is of kind %s, want the same", kind, d.Kind)
				default:
					got = append(got, d.Name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("domains by kind (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDomainOfUnknownKind: a kind of a newer version is not a domain, which may look free.
func TestDomainOfUnknownKind(t *testing.T) {
	s := cascade()
	f, _ := s.Function(addr(t, "0000:23:00.0"))
	for _, kind := range []isolation.DomainKind{"", "Socket", "switch"} {
		if d, ok := isolation.DomainAround(s, f, kind); ok {
			t.Errorf("DomainAround %q = %+v, want none", kind, d)
		}
	}
}

func TestSwitches(t *testing.T) {
	for function, want := range map[string][]string{
		"0000:20:01.0": nil,
		"0000:21:00.0": nil,
		"0000:22:00.0": {"0000:21:00.0"},
		"0000:23:00.0": {"0000:21:00.0"},
		"0000:24:00.0": {"0000:21:00.0"},
		"0000:27:00.0": {"0000:21:00.0", "0000:24:00.0"},
	} {
		s := cascade()
		f, _ := s.Function(addr(t, function))
		var got []string
		for _, a := range isolation.Switches(s, f) {
			got = append(got, a.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("switches above %s (-want +got):\n%s", function, diff)
		}
	}
}

// TestSwitchWhosePortsAreUnknown: a bridge that is not on the bus, or does not say what it is, is not a switch.
func TestSwitchWhosePortsAreUnknown(t *testing.T) {
	s := cascade()
	for name, change := range map[string]func(*device.Function){
		"without capabilities": conventional,
		"another port":         express(pci.DownstreamPort),
	} {
		for i := range s.Functions {
			if s.Functions[i].Address == addr(t, "0000:24:00.0") {
				change(&s.Functions[i])
			}
		}
		f, _ := s.Function(addr(t, "0000:26:00.0"))
		if d, ok := isolation.DomainAround(s, f, isolation.SwitchDomain); !ok || d.Name != "0000:21:00.0" {
			t.Errorf("%s: %+v, want the switch above", name, d)
		}
	}
	f, _ := s.Function(addr(t, "0000:23:00.0"))
	alone := node(*f)
	if d, ok := isolation.DomainAround(alone, &alone.Functions[0], isolation.SwitchDomain); ok {
		t.Errorf("without the ports: DomainAround = %+v, want none", d)
	}
}

// TestDomainKindsAreThoseOfTheAPI: a rule can name each kind, and no other.
func TestDomainKindsAreThoseOfTheAPI(t *testing.T) {
	var users []isolation.DomainKind
	for _, d := range v1alpha1.ExclusiveDomains() {
		users = append(users, isolation.DomainKind(d))
	}
	if diff := cmp.Diff(users, isolation.DomainKinds()); diff != "" {
		t.Errorf("kinds (-want the API's +got isolation's):\n%s", diff)
	}
}

// TestDomainsHaveWords: each kind is named in its own words, with its name.
func TestDomainsHaveWords(t *testing.T) {
	want := []string{
		"card 7", "physical function 7", "switch 7", "root port 7", "NUMA node 7", "node", "fabric of the GPUs of vendor 7",
	}
	var got []string
	for _, kind := range isolation.DomainKinds() {
		got = append(got, fmt.Sprint(isolation.ExclusiveDomain{Kind: kind, Name: "7"}))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestFunctionIsInTheDomainsOfAllItsSwitches: a switch has everything below it, other switches included.
func TestFunctionIsInTheDomainsOfAllItsSwitches(t *testing.T) {
	s := cascade()
	for function, want := range map[string]string{
		"0000:20:01.0": "[]", "0000:23:00.0": "[switch 0000:21:00.0]", "0000:26:00.0": "[switch 0000:21:00.0 switch 0000:24:00.0]",
	} {
		f, _ := s.Function(addr(t, function))
		if got := fmt.Sprint(isolation.DomainsAround(s, f, isolation.SwitchDomain)); got != want {
			t.Errorf("%s is in %s, want %s", function, got, want)
		}
		for _, kind := range isolation.DomainKinds() {
			d, ok := isolation.DomainAround(s, f, kind)
			if all := isolation.DomainsAround(s, f, kind); ok != slices.Contains(all, d) || kind != isolation.SwitchDomain && len(all) > 1 {
				t.Errorf("%s %s is in %v, want one domain, and %v among them", kind, function, all, d)
			}
		}
	}
}

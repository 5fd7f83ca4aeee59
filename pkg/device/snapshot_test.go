package device_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// node is a GPU with audio and USB functions in two groups, a port above it and
// two VFs that share a slot number.
func node(t *testing.T) *device.Snapshot {
	t.Helper()
	group := func(n int) *int { return &n }
	return &device.Snapshot{
		Functions: []device.Function{
			{Address: addr(t, "0000:3a:00.0"), Type: device.Bridge, Class: 0x060400},
			{Address: addr(t, "0000:3b:00.0"), Type: device.GPU, Class: 0x030000, Group: group(15), ResetMethods: []string{"flr", "bus"}},
			{Address: addr(t, "0000:3b:00.1"), Type: device.Other, Class: 0x040300, Group: group(15)},
			{Address: addr(t, "0000:3b:00.2"), Type: device.Other, Class: 0x0c0330, Group: group(16)},
			{Address: addr(t, "0000:5e:10.0"), Type: device.VFType, Class: 0x020000, Group: group(20)},
			{Address: addr(t, "0000:5e:10.1"), Type: device.VFType, Class: 0x020000, Group: group(21)},
		},
		Groups: []device.Group{
			{Number: 15, Members: []pci.Address{addr(t, "0000:3b:00.0"), addr(t, "0000:3b:00.1"), addr(t, "0000:3b:00.7")}},
			{Number: 16, Members: []pci.Address{addr(t, "0000:3b:00.2")}},
			{Number: 20, Members: []pci.Address{addr(t, "0000:5e:10.0")}},
			{Number: 21, Members: []pci.Address{addr(t, "0000:5e:10.1")}},
		},
	}
}

func addresses(functions []*device.Function) []string {
	var text []string
	for _, f := range functions {
		text = append(text, f.Address.String())
	}
	return text
}

func TestLookUps(t *testing.T) {
	s := node(t)
	for i := range s.Functions {
		f, ok := s.Function(s.Functions[i].Address)
		if !ok || f != &s.Functions[i] {
			t.Errorf("Function(%v) = %v, %v", s.Functions[i].Address, f, ok)
		}
	}
	if f, ok := s.Function(addr(t, "0000:3b:00.3")); ok || f != nil {
		t.Errorf("there is no 0000:3b:00.3, but found %v", f)
	}
	for i := range s.Groups {
		g, ok := s.Group(s.Groups[i].Number)
		if !ok || g != &s.Groups[i] {
			t.Errorf("Group(%d) = %v, %v", s.Groups[i].Number, g, ok)
		}
	}
	if g, ok := s.Group(17); ok {
		t.Errorf("there is no group 17, but found %v", g)
	}
	empty := &device.Snapshot{}
	if _, ok := empty.Function(addr(t, "0000:3b:00.0")); ok {
		t.Error("an empty snapshot has a function")
	}
}

// TestCard: below a link all physical functions of the bus are one device, and on a root bus those of one device number.
func TestCard(t *testing.T) {
	at := func(text string, kind pci.PortType, upstream ...pci.Address) device.Function {
		return device.Function{Address: addr(t, text), Upstream: upstream, Capabilities: pci.Capabilities{Express: &pci.Express{Type: kind}}}
	}
	port := addr(t, "0000:00:01.0")
	vf := at("0000:21:01.1", pci.Endpoint, port)
	vf.VF = &device.VF{PF: addr(t, "0000:21:00.0")}
	s := &device.Snapshot{Functions: []device.Function{
		at("0000:00:02.0", pci.RCEndpoint), at("0000:00:02.1", pci.RCEndpoint), at("0000:00:03.0", pci.RCEndpoint),
		at("0000:21:00.0", pci.Endpoint, port), at("0000:21:00.7", pci.Endpoint, port), at("0000:21:01.0", pci.Endpoint, port), vf,
		at("0000:22:00.0", pci.Endpoint, addr(t, "0000:00:04.0")),
	}}
	card := []string{"0000:21:00.0", "0000:21:00.7", "0000:21:01.0"}
	for text, want := range map[string][]string{
		"0000:00:02.1": {"0000:00:02.0", "0000:00:02.1"}, "0000:00:03.0": {"0000:00:03.0"},
		card[0]: card, card[1]: card, card[2]: card, "0000:22:00.0": {"0000:22:00.0"},
	} {
		f, _ := s.Function(addr(t, text))
		if diff := cmp.Diff(want, addresses(s.Slot(f))); diff != "" {
			t.Errorf("device of %s (-want +got):\n%s", text, diff)
		}
		if f.Card() != addr(t, want[0]) {
			t.Errorf("device of %s is %s, want %s", text, f.Card(), want[0])
		}
		if first := f.FirstFunction(); (first != nil) != (text == card[2]) || first != nil && *first != f.Card() {
			t.Errorf("%s names %v as function 0 with another device number", text, first)
		}
	}
}

func TestGroupsAndSlots(t *testing.T) {
	s := node(t)
	gpu, _ := s.Function(addr(t, "0000:3b:00.0"))
	port, _ := s.Function(addr(t, "0000:3a:00.0"))
	vf, _ := s.Function(addr(t, "0000:5e:10.0"))
	g, ok := s.GroupWith(gpu)
	if !ok || g.Number != 15 {
		t.Fatalf("the GPU's group is %v, %v; want 15", g, ok)
	}
	if g, ok := s.GroupWith(port); ok {
		t.Errorf("the port has no group, but found %v", g)
	}
	// A member that the snapshot does not have is left out.
	if diff := cmp.Diff([]string{"0000:3b:00.0", "0000:3b:00.1"}, addresses(s.Members(g))); diff != "" {
		t.Errorf("members of group 15 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0000:3b:00.0", "0000:3b:00.1", "0000:3b:00.2"}, addresses(s.Slot(gpu))); diff != "" {
		t.Errorf("slot of the GPU (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0000:3b:00.1", "0000:3b:00.2"}, addresses(s.Companions(gpu))); diff != "" {
		t.Errorf("companions of the GPU (-want +got):\n%s", diff)
	}
	if c := s.Companions(vf); c != nil {
		t.Errorf("VFs have no companions, but found %v", addresses(c))
	}
	if !port.IsBridge() || gpu.IsBridge() {
		t.Error("the port is the only bridge")
	}
	if !gpu.CanReset("bus") || gpu.CanReset("pm") {
		t.Errorf("reset methods are %v", gpu.ResetMethods)
	}
}

// TestCompanions: what serves a GPU is on its device and of its vendor.
func TestCompanions(t *testing.T) {
	const amd, processor, nvidia = 0x1002, 0x1022, 0x10de
	at := func(text string, vendor pci.ID, class pci.Class) device.Function {
		return device.Function{Address: addr(t, text), Vendor: vendor, Class: class, Type: device.Classify(class, pci.HeaderNormal, false, false)}
	}
	for name, c := range map[string]struct {
		functions []device.Function
		want      []string
	}{
		"a card with audio, USB and USB-C": {
			[]device.Function{at("0000:01:00.0", nvidia, 0x030000), at("0000:01:00.1", nvidia, 0x040300), at("0000:01:00.2", nvidia, 0x0c0330), at("0000:01:00.3", nvidia, 0x0c8000)},
			[]string{"0000:01:00.1", "0000:01:00.2", "0000:01:00.3"},
		},
		"an APU, whose USB, audio and security processor are the processor's": {
			[]device.Function{
				at("0000:01:00.0", amd, 0x030000), at("0000:01:00.1", amd, 0x040300), at("0000:01:00.2", processor, 0x108000), at("0000:01:00.3", processor, 0x0c0330),
				at("0000:01:00.4", processor, 0x0c0330), at("0000:01:00.5", processor, 0x048000), at("0000:01:00.6", processor, 0x040300),
			},
			[]string{"0000:01:00.1"},
		},
		"functions of the GPU's vendor that don't serve it": {
			[]device.Function{at("0000:01:00.0", nvidia, 0x030200), at("0000:01:00.1", nvidia, 0x020000), at("0000:01:00.2", nvidia, 0x068000)}, nil,
		},
		"audio of the vendor on another device": {[]device.Function{at("0000:01:00.0", nvidia, 0x030200), at("0000:02:00.1", nvidia, 0x040300)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &device.Snapshot{Functions: c.functions}
			if diff := cmp.Diff(c.want, addresses(s.Companions(&s.Functions[0]))); diff != "" {
				t.Errorf("companions (-want +got):\n%s", diff)
			}
			for i := range s.Functions {
				f := &s.Functions[i]
				if served := s.Served(f); (len(served) == 1) != slices.Contains(c.want, f.Address.String()) {
					t.Errorf("%s serves %v", f.Address, addresses(served))
				}
			}
		})
	}
}

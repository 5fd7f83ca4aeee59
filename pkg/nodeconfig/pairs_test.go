package nodeconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
)

// place is where a function sits: its root bus and, below that, its switch, which may be none.
type place struct{ root, port string }

// built is a node under construction.
type built struct {
	testing.TB
	functions []device.Function
}

func (b *built) add(address string, f device.Function, at place) *built {
	f.Address, f.Root = addr(b, address), at.root
	if at.port != "" {
		f.Switch = new(addr(b, at.port))
	}
	f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
	f.Group = new(len(b.functions))
	b.functions = append(b.functions, f)
	return b
}

func (b *built) gpu(address string, at place) *built {
	return b.add(address, device.Function{Class: 0x030200}, at)
}

// nic adds a PF at "<bus>:00.0" and its VFs from "<bus>:10.0" on.
func (b *built) nic(bus string, vfs int, at place) *built {
	pf := &device.PF{TotalVFs: 8, NumVFs: vfs}
	for i := range vfs {
		pf.VFs = append(pf.VFs, addr(b, fmt.Sprintf("%s:10.%d", bus, i)))
	}
	b.add(bus+":00.0", device.Function{Class: 0x020000, PF: pf}, at)
	for i, a := range pf.VFs {
		b.add(a.String(), device.Function{Class: 0x020000, VF: &device.VF{PF: addr(b, bus+":00.0"), Index: i}}, at)
	}
	return b
}

// snapshot returns the node; the functions were added in order of address.
func (b *built) snapshot() *device.Snapshot {
	s := &device.Snapshot{Functions: b.functions}
	for i := range s.Functions {
		s.Groups = append(s.Groups, device.Group{Number: i})
		g := &s.Groups[*s.Functions[i].Group]
		g.Members = append(g.Members, s.Functions[i].Address)
	}
	return s
}

func TestPairs(t *testing.T) {
	a, b := place{"pci0000:10", "0000:11:00.0"}, place{"pci0000:40", "0000:41:00.0"}
	besideA := place{"pci0000:10", "0000:21:00.0"}
	tests := map[string]struct {
		node   func(b *built)
		policy v1alpha1.Pairing
		want   []string
		// left are the GPUs of which a problem tells.
		left []string
	}{
		"none unless asked for": {func(n *built) { n.gpu("0000:12:00.0", a).nic("0000:13", 2, a) }, v1alpha1.PairingNone, nil, nil},
		"the last VF at the switch": {
			func(n *built) {
				n.gpu("0000:12:00.0", a).nic("0000:13", 4, a).gpu("0000:42:00.0", b).nic("0000:43", 2, b)
			},
			v1alpha1.PairingSwitch,
			[]string{"gpu-0000-12-00-0-vf-0000-13-10-3", "gpu-0000-42-00-0-vf-0000-43-10-1"},
			nil,
		},
		"GPUs that share NICs are spread over them": {
			func(n *built) {
				n.gpu("0000:12:00.0", a).nic("0000:13", 2, a).nic("0000:14", 2, a).gpu("0000:15:00.0", a).gpu("0000:16:00.0", a)
			},
			v1alpha1.PairingSwitch,
			[]string{"gpu-0000-12-00-0-vf-0000-13-10-1", "gpu-0000-15-00-0-vf-0000-14-10-1", "gpu-0000-16-00-0-vf-0000-13-10-0"},
			nil,
		},
		"not from another switch": {
			func(n *built) { n.gpu("0000:12:00.0", a).nic("0000:22", 2, besideA) }, v1alpha1.PairingSwitch, nil, []string{"0000:12:00.0"},
		},
		"from the root, after those at the switch": {
			func(n *built) { n.gpu("0000:12:00.0", a).nic("0000:22", 2, besideA).gpu("0000:23:00.0", besideA) },
			v1alpha1.PairingRoot,
			[]string{"gpu-0000-12-00-0-vf-0000-22-10-0", "gpu-0000-23-00-0-vf-0000-22-10-1"},
			nil,
		},
		"not from another root": {
			func(n *built) { n.gpu("0000:12:00.0", a).nic("0000:43", 2, b) }, v1alpha1.PairingRoot, nil, []string{"0000:12:00.0"},
		},
		"no more than there are": {
			func(n *built) { n.gpu("0000:12:00.0", a).nic("0000:13", 1, a).gpu("0000:14:00.0", a) },
			v1alpha1.PairingRoot,
			[]string{"gpu-0000-12-00-0-vf-0000-13-10-0"},
			[]string{"0000:14:00.0"},
		},
		"not a VF that shares its group": {
			func(n *built) {
				n.gpu("0000:12:00.0", a).nic("0000:13", 2, a)
				n.functions[3].Group = n.functions[2].Group
			},
			v1alpha1.PairingSwitch, nil,
			[]string{"0000:12:00.0"},
		},
		"not the VFs of a disk": {
			func(n *built) {
				n.gpu("0000:12:00.0", a).nic("0000:13", 2, a)
				n.functions[1].Class = 0x010802
			},
			v1alpha1.PairingSwitch, nil,
			[]string{"0000:12:00.0"},
		},
		"not a VF that the node uses, nor another in its place": {
			func(n *built) {
				n.gpu("0000:12:00.0", a).nic("0000:13", 3, a).gpu("0000:14:00.0", a)
				n.functions[4].Uses = []device.Use{{Kind: device.UseMaster}}
			},
			v1alpha1.PairingSwitch,
			[]string{"gpu-0000-14-00-0-vf-0000-13-10-1"},
			[]string{"0000:12:00.0"},
		},
		"no GPU that the node uses": {
			func(n *built) {
				n.gpu("0000:12:00.0", a).nic("0000:13", 2, a)
				n.functions[0].Uses = []device.Use{{Kind: device.UseConsole}}
			},
			v1alpha1.PairingSwitch, nil, nil,
		},
		"no switch is not a switch in common": {
			func(n *built) {
				n.gpu("0000:12:00.0", place{"pci0000:10", ""}).nic("0000:13", 2, place{"pci0000:10", ""})
			},
			v1alpha1.PairingSwitch, nil,
			[]string{"0000:12:00.0"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := &built{TB: t}
			test.node(n)
			sel := nodeconfig.Select(&v1alpha1.NodeConfig{Pairing: test.policy}, n.snapshot())
			var got []string
			for _, p := range sel.Pairs() {
				got = append(got, p.Name())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			problems := sel.Problems()
			if len(problems) != len(test.left) {
				t.Fatalf("got %v, want problems of %v", problems, test.left)
			}
			for i, gpu := range test.left {
				if problems[i].Object != "pairing" || !strings.Contains(problems[i].Text, gpu) {
					t.Errorf("got %+v, want a problem of %s", problems[i], gpu)
				}
			}
		})
	}
}

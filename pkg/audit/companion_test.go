package audit_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// cardWithCompanions is a node whose GPU and its audio function have groups of their own and no reset but that of the
// bus, with another device on the bus or without.
func cardWithCompanions(other bool) *device.Snapshot {
	express := func(t pci.PortType) pci.Capabilities {
		return pci.Capabilities{Express: &pci.Express{Type: t}, ACS: &pci.ACS{Capability: 0x5f, Control: 0x1d}}
	}
	port := pci.Address{Bus: 0x16}
	function := func(a pci.Address, t device.Type, class pci.Class, group int) device.Function {
		return device.Function{
			Address: a, Type: t, Class: class, Vendor: 0x1002, Driver: "vfio-pci", Root: "pci0000:16", Upstream: []pci.Address{port},
			Group: &group, Capabilities: express(pci.Endpoint),
		}
	}
	bridge := device.Function{Address: port, Type: device.Bridge, Class: 0x060400, Driver: "pcieport", Root: "pci0000:16", Group: new(1), Capabilities: express(pci.RootPort)}
	s := &device.Snapshot{
		Host: device.Host{IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI-0000:16:00.0"}},
		Functions: []device.Function{
			bridge,
			function(pci.Address{Bus: 0x17}, device.GPU, 0x030000, 2),
			function(pci.Address{Bus: 0x17, Function: 1}, device.Other, 0x040300, 3),
		},
		Groups: []device.Group{
			{Number: 1, Type: "DMA", Members: []pci.Address{port}},
			{Number: 2, Type: "DMA", Members: []pci.Address{{Bus: 0x17}}},
			{Number: 3, Type: "DMA", Members: []pci.Address{{Bus: 0x17, Function: 1}}},
		},
	}
	if other {
		s.Functions = append(s.Functions, function(pci.Address{Bus: 0x17, Device: 1}, device.Other, 0x088000, 4))
		s.Groups = append(s.Groups, device.Group{Number: 4, Type: "DMA", Members: []pci.Address{{Bus: 0x17, Device: 1}}})
	}
	return s
}

// TestCompanionThatTheGPUsResetCovers is not a fault of the node, unless the node config selects it for itself.
func TestCompanionThatTheGPUsResetCovers(t *testing.T) {
	alone := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "other"}}}}}
	for name, tt := range map[string]struct {
		other  bool
		own    []string // reset methods of the GPU
		config *v1alpha1.NodeConfig
		grade  audit.Grade
		shown  string
	}{
		"goes with its GPU":                    {false, nil, nil, audit.Good, "goes with 0000:17:00.0"},
		"selected for itself":                  {false, nil, alone, audit.Bad, "NoReset"},
		"on a bus that has a stranger too":     {true, nil, nil, audit.Bad, "NoReset"},
		"beside a GPU with a reset of its own": {true, []string{"flr"}, nil, audit.Good, "goes with 0000:17:00.0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := cardWithCompanions(tt.other)
			s.Functions[1].ResetMethods = tt.own
			inv := audit.NewInventory(plan.Node{Snapshot: s, Selection: nodeconfig.Select(tt.config, s)}, nil)
			audio := &inv.Devices[2]
			if got := audio.Grade(); got != tt.grade {
				t.Errorf("grade %v, want %v: %+v %+v", got, tt.grade, audio.Reasons, audio.Refusals)
			}
			if reset := tt.grade == audit.Good && tt.own == nil; audio.Isolated != (tt.grade == audit.Good) || (audio.Reset != nil) != reset {
				t.Errorf("isolated %t, reset %+v", audio.Isolated, audio.Reset)
			}
			if out := table(t, inv, audit.Style{}); !strings.Contains(out, tt.shown) {
				t.Errorf("%q is not in\n%s", tt.shown, out)
			}
		})
	}
}

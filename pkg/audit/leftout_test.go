package audit_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// TestFunctionThatNoRuleSelects is not shown as one that a claim can use, and the list says what would select an NVSwitch: a rule
// for all functions of the vendor does not.
func TestFunctionThatNoRuleSelects(t *testing.T) {
	for name, c := range map[string]struct {
		match *v1alpha1.DeviceMatch
		out   string
	}{
		"default config":     {nil, "not selected"},
		"a rule of a vendor": {&v1alpha1.DeviceMatch{Vendors: []pci.ID{pci.VendorNVIDIA}}, "not selected"},
		"its device ID":      {&v1alpha1.DeviceMatch{Vendors: []pci.ID{pci.VendorNVIDIA}, Devices: []pci.ID{0x22a3}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine()
			port := m.port("0000:03:00.0", "pci0000:03", 0, pci.RootPort, on())
			a := m.add("0000:04:00.0", "pci0000:03", 0, 0x068000, "GH100 [H100 NVSwitch]", with("nvidia-nvswitch", below(port)))
			m.s.Functions[1].Vendor, m.s.Functions[1].Device = pci.VendorNVIDIA, 0x22a3
			s := m.snapshot()
			var config *v1alpha1.NodeConfig
			if c.match != nil {
				config = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: *c.match}}}
			}
			inv := audit.NewInventory(plan.Node{Snapshot: s, Selection: nodeconfig.Select(config, s)}, nil)
			nvswitch := find(t, inv, a)
			if !nvswitch.IsNVSwitch() {
				t.Fatalf("%s is no NVSwitch, so that the test asserts nothing", a)
			}
			if got := nvswitch.LeftOut(); got != c.out {
				t.Errorf("left out %q, want %q", got, c.out)
			}
			if out := nvswitch.Grade() == audit.None; out != (c.out != "") {
				t.Errorf("grade %v, want none only if it is left out", nvswitch.Grade())
			}
			text := strings.Join(strings.Fields(table(t, inv, audit.Style{})), " ")
			for _, want := range []string{
				"isolated, not selected", "not published, as the node config does not select them: 1",
				"no rule of the node config names its type, class, device ID or address", "add it to the node config",
			} {
				if got := strings.Contains(text, want); got != (c.out != "") {
					t.Errorf("%q is in the table: got %t, want %t:\n%s", want, got, c.out != "", text)
				}
			}
		})
	}
}

package isolation_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// The kernel arguments of a fix do what it says: config_acs switches on what is missing,
// disable_acs_redir is to go.
func TestSeparateNamesTheKernelArguments(t *testing.T) {
	port := device.Function{Address: pci.Address{Device: 1}, Class: 0x060400, Capabilities: pci.Capabilities{
		Express: &pci.Express{Type: pci.RootPort}, ACS: &pci.ACS{Capability: 0x1d, Control: 0x01},
	}}
	vf := device.Function{Address: pci.Address{Bus: 1}, Class: 0x020000, Upstream: []pci.Address{port.Address}}
	for name, tt := range map[string]struct {
		acs  *pci.ACS
		want []string
	}{
		"redirection is off": {&pci.ACS{Capability: 0x1d, Control: 0x01}, []string{"take `pci=disable_acs_redir=` off", "`pci=config_acs=xx111xx@0000:00:01.0`"}},
		"all of it is off":   {&pci.ACS{Capability: 0x1d}, []string{"`pci=config_acs=xx111x1@0000:00:01.0`"}},
		"no ACS":             {nil, []string{"move 0000:01:00.0 to a slot whose ports have ACS"}},
	} {
		t.Run(name, func(t *testing.T) {
			port.Capabilities.ACS = tt.acs
			fix := isolation.Separate(&device.Snapshot{Functions: []device.Function{port, vf}}, &vf)
			for _, word := range tt.want {
				if !strings.Contains(fix, word) {
					t.Errorf("%q does not say %q", fix, word)
				}
			}
			if value, ok := strings.CutPrefix(fix[max(0, strings.Index(fix, "pci=config_acs=")):], "pci="); ok {
				value, _, _ = strings.Cut(value, "`")
				if why := isolation.WeakensACS(value); why != "" {
					t.Errorf("the argument %q %s", value, why)
				}
			}
		})
	}
}

//go:build lab

package claims_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestRefusals asks for what can't be had, and checks that the refusal names the culprit, its driver and a way out,
// and that nothing moved.
func TestRefusals(t *testing.T) {
	kernel.VFs(t, topology.PF0, "1")
	pf := kernel.Interface(t, topology.PF0)
	ip(t, "address", "replace", "10.9.0.20/24", "dev", pf)
	t.Cleanup(func() { ip(t, "address", "flush", "dev", pf) })
	tests := map[string]struct {
		ask   string
		cfg   *v1alpha1.NodeConfig
		want  rule.Code
		names []string
	}{
		"a bridge with a driver in the group": {
			ask: topology.Edu0, cfg: stage.Everything("other"), want: rule.GroupNotViable,
			names: []string{topology.Bridge0, "shpchp"},
		},
		"a GPU behind a switch without ACS": {
			ask: topology.GPU4, want: rule.NotIsolated, names: []string{topology.GPU4Port, topology.SwitchNIC, "ACS"},
		},
		"a NIC that is not ours": {
			ask: topology.NIC0, want: rule.NotOurs, names: []string{topology.NIC0, "e1000e"},
		},
		"a PF with VFs": {
			ask: topology.PF0, cfg: stage.Everything("pf"), want: rule.Forbidden, names: []string{topology.PF0, "igb"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := open(t, tt.cfg)
			before := stage.Bindings(t)
			_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, "refused", tt.ask))
			if refused := asRefusal(t, err); !refused.Has(tt.want) {
				t.Errorf("refused with %+v; want %s", refused.Verdicts, tt.want)
			}
			for _, name := range tt.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("the message does not name %s: %v", name, err)
				}
			}
			t.Log(err)
			if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
				t.Errorf("a refused claim moved something (-before +after):\n%s", diff)
			}
		})
	}
}

// TestBridgeUnboundMakesItViable follows the refusal's own advice.
func TestBridgeUnboundMakesItViable(t *testing.T) {
	n := open(t, stage.Everything("other"))
	_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, "advice", topology.Edu0))
	asRefusal(t, err)
	kernel.Write(t, kernel.Path(topology.Bridge0, "driver/unbind"), topology.Bridge0)
	t.Cleanup(func() { kernel.Write(t, "/sys/bus/pci/drivers_probe", topology.Bridge0) })
	n = open(t, stage.Everything("other"))
	before := stage.Bindings(t)
	_, err = n.Preparer.Prepare(t.Context(), stage.Request(t, "advice", topology.Edu0))
	if refused := asRefusal(t, err); !refused.Has(rule.GroupMateNotSelected) || !strings.Contains(err.Error(), topology.NIC1) {
		t.Errorf("refused with %+v; want %s for %s, which the config does not name", refused.Verdicts, rule.GroupMateNotSelected, topology.NIC1)
	}
	cfg := stage.Everything("other")
	cfg.Devices = append(cfg.Devices, v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{stage.Address(t, topology.NIC1)}}})
	cfg.Default()
	n = open(t, cfg)
	mustPrepare(t, n, stage.Request(t, "advice", topology.Edu0))
	for _, mate := range []string{topology.Edu0, topology.NIC1} {
		if got := kernel.Driver(t, mate); got != "vfio-pci" {
			t.Errorf("%s is on %q; want vfio-pci: the group goes as a whole", mate, got)
		}
	}
	mustUnprepare(t, n, "advice")
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

package plan_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestClaimKeepsTheNameOfAFormerType: earlier versions published accelerators as type other. A claim that was allocated by that name is
// prepared by it, and no name of another type is.
func TestClaimKeepsTheNameOfAFormerType(t *testing.T) {
	vf := vfOf(0x8086, 0x4941, 0x0b4000, "")
	s := assemble([]device.Function{vf})
	n := node(s)
	n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"accelerator"}}}}}, s)
	for kind, want := range map[string]rule.Code{"accelerator": "", "other": "", "pf": rule.WrongType, "vf": rule.WrongType} {
		req := asking(s, vf.Address)
		req.Devices[0].Name = kind + "-" + vf.Address.Label()
		req.Devices[0].VFIO.AllowUnisolated, req.Devices[0].VFIO.Reset = new(true), v1alpha1.ResetSkip
		pl, err := plan.Make(req, n)
		if got := rule.Classify(err); err != nil && got != want || err == nil && want != "" {
			t.Errorf("claim of %s: %v, want %q", req.Devices[0].Name, err, want)
		}
		if err == nil && pl.Devices[0].Name != req.Devices[0].Name {
			t.Errorf("the plan has %s, want the claim's %s", pl.Devices[0].Name, req.Devices[0].Name)
		}
	}
}

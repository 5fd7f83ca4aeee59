package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// A check that fails for a function, or for one that goes with it, refuses the
// claim, unless the class allows devices that are not isolated.
func TestFailedCheckRefuses(t *testing.T) {
	failing := func(at pci.Address) func(pci.Address) []string {
		return func(a pci.Address) []string {
			if a != at {
				return nil
			}
			return []string{"ACS-001", "RST-003"}
		}
	}
	for name, tt := range map[string]struct {
		ask, fails pci.Address
		change     func(*claim.Request)
		want       string
	}{
		"the device":           {ask: gpuAddr, fails: gpuAddr, want: gpuAddr.String()},
		"what goes with it":    {ask: audioGPU, fails: audio, want: audio.String()},
		"another device":       {ask: gpuAddr, fails: emptyGPU},
		"allowed by the class": {ask: gpuAddr, fails: gpuAddr, change: func(r *claim.Request) { r.Devices[0].VFIO.AllowUnisolated = new(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req, n := asking(s, tt.ask), node(s)
			n.Failing = failing(tt.fails)
			if tt.change != nil {
				tt.change(req)
			}
			_, err := plan.Make(req, n)
			if tt.want == "" {
				if err != nil {
					t.Errorf("Make = %v, want nil", err)
				}
				return
			}
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if !ok || !refused.Has(rule.FailsAudit) {
				t.Fatalf("Make = %v, want %s", err, rule.FailsAudit)
			}
			for _, word := range []string{tt.want, "ACS-001, RST-003", "kata-vfio-audit explain ACS-001", "kata-vfio-audit waive ACS-001 --scope 0000:"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("Make = %q, want it to say %q", err, word)
				}
			}
		})
	}
}

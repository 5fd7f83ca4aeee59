package publish_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Whatever Prepare refuses has a taint, and what another claim merely has does not.
func TestRefusalIsATaint(t *testing.T) {
	for name, tt := range map[string]struct {
		codes []plan.Code
		want  []string
	}{
		"nothing":                    {nil, nil},
		"held by a claim":            {[]plan.Code{plan.Held}, nil},
		"quarantined":                {[]plan.Code{plan.Quarantined}, []string{"quarantined="}},
		"dead":                       {[]plan.Code{plan.Dead}, []string{"dead="}},
		"without a link":             {[]plan.Code{plan.LinkLost}, []string{"link-lost="}},
		"fatal errors":               {[]plan.Code{plan.FatalErrors}, []string{"fatal-errors="}},
		"a PF with VFs in its group": {[]plan.Code{plan.PFBusy}, []string{"not-preparable=PFBusy"}},
		"a hung operation":           {[]plan.Code{plan.Locked}, []string{"not-preparable=Locked"}},
		"a mate without a reset":     {[]plan.Code{plan.NoReset}, []string{"not-preparable=NoReset"}},
		"the first of several":       {[]plan.Code{plan.Held, plan.Unexplained, plan.Unsupported}, []string{"not-preparable=DamagedRecord"}},
		"a drain that is not told":   {[]plan.Code{plan.Drained}, []string{"drain=Draining"}},
		"a node that is not ready":   {[]plan.Code{plan.NodeNotReady}, []string{"node-not-ready=DiskFull"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := hopper(t, "0000:3b:00.0", 10)
			n := nodeOf(f)
			refuse(n, f.Address, tt.codes...)
			var got []string
			for _, taint := range deviceNamed(publish.Pools(n), "gpu-0000-3b-00-0").Taints {
				got = append(got, taint.Key[len("kata-vfio.dev/"):]+"="+taint.Value)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

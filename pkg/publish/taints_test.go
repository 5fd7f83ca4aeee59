package publish_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Whatever Prepare refuses has a taint, and what another claim merely has does not.
func TestRefusalIsATaint(t *testing.T) {
	for name, tt := range map[string]struct {
		codes []rule.Code
		want  []string
	}{
		"nothing":                    {nil, nil},
		"held by a claim":            {[]rule.Code{rule.Held}, nil},
		"quarantined":                {[]rule.Code{rule.Quarantined}, []string{"quarantined=Quarantined"}},
		"dead":                       {[]rule.Code{rule.ConfigSpaceDead}, []string{"dead="}},
		"without a link":             {[]rule.Code{rule.LinkLost}, []string{"link-lost="}},
		"fatal errors":               {[]rule.Code{rule.FatalErrors}, []string{"fatal-errors="}},
		"a PF with VFs in its group": {[]rule.Code{rule.PFBusy}, []string{"not-preparable=PFBusy"}},
		"a hung operation":           {[]rule.Code{rule.Locked}, []string{"not-preparable=Locked"}},
		"a mate without a reset":     {[]rule.Code{rule.NoReset}, []string{"not-preparable=NoReset"}},
		"the first of several":       {[]rule.Code{rule.Held, rule.DamagedRecord, rule.UnsupportedSetting}, []string{"not-preparable=DamagedRecord"}},
		"a drain that is not told":   {[]rule.Code{rule.Drained}, []string{"drain=Draining"}},
		"waits to be sanitized":      {[]rule.Code{rule.NotSanitized}, []string{"sanitizing=memory"}},
		"a stage that failed":        {[]rule.Code{rule.SanitizeFailed}, []string{"quarantined=SanitizeFailed"}},
		"changed firmware":           {[]rule.Code{rule.FirmwareChanged}, []string{"quarantined=FirmwareChanged"}},
		"without its sanitizer":      {[]rule.Code{rule.SanitizerUnknown}, []string{"not-preparable=SanitizerUnknown"}},
		"in a tenant's domain":       {[]rule.Code{rule.DomainOfOtherTenant}, []string{"tenant=" + tenantID}},
		"a node that is not ready":   {[]rule.Code{rule.NodeNotReady}, []string{"node-not-ready=DiskFull"}},
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

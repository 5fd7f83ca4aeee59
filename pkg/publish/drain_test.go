package publish

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func TestDrainIsATaint(t *testing.T) {
	one := func(value rule.Code, effect resourceapi.DeviceTaintEffect) taintList {
		return taintList{{Key: "kata-vfio.dev/drain", Value: string(value), Effect: effect}}
	}
	tests := map[string]struct {
		parts []Health
		want  taintList
	}{
		"none":                       {[]Health{{}}, nil},
		"in use":                     {[]Health{{Drained: rule.Draining}}, one(rule.Draining, resourceapi.DeviceTaintEffectNoSchedule)},
		"free":                       {[]Health{{Drained: rule.Drained}}, one(rule.Drained, resourceapi.DeviceTaintEffectNoSchedule)},
		"to evict":                   {[]Health{{Drained: rule.Draining, Evict: true}}, one(rule.Draining, resourceapi.DeviceTaintEffectNoExecute)},
		"a pair, one part in use":    {[]Health{{Drained: rule.Drained}, {Drained: rule.Draining}}, one(rule.Draining, resourceapi.DeviceTaintEffectNoSchedule)},
		"a pair, the other evicts":   {[]Health{{Drained: rule.Draining}, {Drained: rule.Drained, Evict: true}}, one(rule.Draining, resourceapi.DeviceTaintEffectNoExecute)},
		"a pair, one is out of that": {[]Health{{}, {Drained: rule.Drained}}, one(rule.Drained, resourceapi.DeviceTaintEffectNoSchedule)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got taintList
			for _, h := range tt.parts {
				got.drain(h)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
		})
	}
}

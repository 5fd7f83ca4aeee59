package publish

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/google/go-cmp/cmp"
)

func TestDrainIsATaint(t *testing.T) {
	one := func(value DrainState, effect resourceapi.DeviceTaintEffect) taintList {
		return taintList{{Key: "kata-vfio.dev/drain", Value: string(value), Effect: effect}}
	}
	tests := map[string]struct {
		parts []Health
		want  taintList
	}{
		"none":                       {[]Health{{}}, nil},
		"in use":                     {[]Health{{Drained: Draining}}, one(Draining, resourceapi.DeviceTaintEffectNoSchedule)},
		"free":                       {[]Health{{Drained: Drained}}, one(Drained, resourceapi.DeviceTaintEffectNoSchedule)},
		"to evict":                   {[]Health{{Drained: Draining, Evict: true}}, one(Draining, resourceapi.DeviceTaintEffectNoExecute)},
		"a pair, one part in use":    {[]Health{{Drained: Drained}, {Drained: Draining}}, one(Draining, resourceapi.DeviceTaintEffectNoSchedule)},
		"a pair, the other evicts":   {[]Health{{Drained: Draining}, {Drained: Drained, Evict: true}}, one(Draining, resourceapi.DeviceTaintEffectNoExecute)},
		"a pair, one is out of that": {[]Health{{}, {Drained: Drained}}, one(Drained, resourceapi.DeviceTaintEffectNoSchedule)},
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

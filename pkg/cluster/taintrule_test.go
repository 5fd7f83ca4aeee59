package cluster_test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

func TestSelectorOfARule(t *testing.T) {
	id := cluster.ID{Driver: "kata-vfio.dev", Pool: "n1/kata-vfio.dev", Name: "gpu-0000-01-00-0"}
	for name, tt := range map[string]struct {
		selector *resourceapi.DeviceTaintSelector
		want     bool
	}{
		"none":                 {nil, false},
		"empty":                {&resourceapi.DeviceTaintSelector{}, true},
		"the driver":           {&resourceapi.DeviceTaintSelector{Driver: new(id.Driver)}, true},
		"the pool of a drain":  {&resourceapi.DeviceTaintSelector{Driver: new(id.Driver), Pool: new(id.Pool)}, true},
		"the device":           {&resourceapi.DeviceTaintSelector{Driver: new(id.Driver), Pool: new(id.Pool), Device: new(id.Name)}, true},
		"another driver":       {&resourceapi.DeviceTaintSelector{Driver: new("gpu.example.com")}, false},
		"another node's pool":  {&resourceapi.DeviceTaintSelector{Driver: new(id.Driver), Pool: new("n2/kata-vfio.dev")}, false},
		"another device there": {&resourceapi.DeviceTaintSelector{Driver: new(id.Driver), Pool: new(id.Pool), Device: new("gpu-0000-02-00-0")}, false},
	} {
		r := &resourceapi.DeviceTaintRule{Spec: resourceapi.DeviceTaintRuleSpec{DeviceSelector: tt.selector}}
		if got := cluster.Selects(r, id); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}

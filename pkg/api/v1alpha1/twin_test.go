package v1alpha1_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// TestTwinRuleName: rules outlive releases, so the name of a device's rule never changes.
func TestTwinRuleName(t *testing.T) {
	got := v1alpha1.TwinRuleName("gpu.example.com", "node-a", "gpu-0")
	if want := "kata-vfio-twin-77a2c07bfbf9e2c7"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, other := range [][3]string{{"kata-vfio.dev", "node-a", "gpu-0"}, {"gpu.example.com", "node-b", "gpu-0"}, {"gpu.example.com", "node-a", "gpu-1"}} {
		if v1alpha1.TwinRuleName(other[0], other[1], other[2]) == got {
			t.Errorf("%v has the same name", other)
		}
	}
}

package cdi_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
)

func TestAnnotations(t *testing.T) {
	const mode = "io.katacontainers.config.runtime.vfio_mode"
	for name, tt := range map[string]struct {
		inVM    bool
		key     string
		value   string
		refused bool
	}{
		"of Kata's, in a VM":             {inVM: true, key: mode, refused: true},
		"of Kata's, in capitals":         {inVM: true, key: "IO.KataContainers.config.runtime.vfio_mode", refused: true},
		"of Kata's, outside of a VM":     {key: mode},
		"of CDI's, in a VM":              {inVM: true, key: "cdi.k8s.io/x", value: "example.com/nic=0", refused: true},
		"of CDI's, outside of a VM":      {key: "cdi.k8s.io/x", value: "example.com/nic=0"},
		"of CDI's, for a device of ours": {key: "cdi.k8s.io/x", value: "example.com/nic=0,Kata-VFIO.dev/vfio=a", refused: true},
		"of neither":                     {inVM: true, key: "example.com/cdi.k8s.io", value: "kata-vfio.dev/vfio=a"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := cdi.CheckAnnotations(map[string]string{"a": "b", tt.key: tt.value}, tt.inVM)
			if (refused != nil) != tt.refused {
				t.Fatalf("Annotations = %+v, want a refusal: %t", refused, tt.refused)
			}
			if refused != nil && refused.Object != tt.key {
				t.Errorf("the refusal names %q, want %q", refused.Object, tt.key)
			}
		})
	}
}

func TestHostPath(t *testing.T) {
	for path, refused := range map[string]bool{
		"/dev": true, "/dev/": true, "//dev": true, "/./dev/.": true, "/dev/vfio": true, "/dev//vfio/vfio": true, "/dev/vfio/devices/vfio0": true, "/dev/iommu": true,
		"/": false, "/dev/shm": false, "/dev/vfiox": false, "/var/dev": false, "/devices": false,
	} {
		if got := cdi.CheckHostPath(path); (got != nil) != refused {
			t.Errorf("HostPath(%s) = %+v, want a refusal: %t", path, got, refused)
		}
	}
}

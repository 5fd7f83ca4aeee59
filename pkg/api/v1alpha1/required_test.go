package v1alpha1_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

func TestRequiresPlugin(t *testing.T) {
	const key = v1alpha1.AnnotationRequiredPlugins
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"no annotation":         {nil, false},
		"the chart's value":     {map[string]string{key: "[ kata-vfio ]"}, true},
		"with others":           {map[string]string{key: "[other, \"kata-vfio\"]"}, true},
		"a list in lines":       {map[string]string{key: "- other\n- kata-vfio\n"}, true},
		"others only":           {map[string]string{key: "[other]"}, false},
		"a longer name":         {map[string]string{key: "[kata-vfio-2]"}, false},
		"no list":               {map[string]string{key: "kata-vfio"}, false},
		"no YAML":               {map[string]string{key: "[kata-vfio"}, false},
		"of the pod":            {map[string]string{key + "/pod": "[kata-vfio]"}, true},
		"of the pod, excused":   {map[string]string{key + "/pod": "[]", key: "[kata-vfio]"}, false},
		"of the container":      {map[string]string{key + "/container.app": "[kata-vfio]", key + "/pod": "[]"}, true},
		"the container excused": {map[string]string{key + "/container.app": "[]", key: "[kata-vfio]"}, false},
		"another one excused":   {map[string]string{key + "/container.other": "[]", key: "[kata-vfio]"}, true},
		"of another one":        {map[string]string{key + "/container.other": "[kata-vfio]"}, false},
		"with another key":      {map[string]string{key + "s": "[kata-vfio]"}, false},
	} {
		if got := v1alpha1.RequiresPlugin(tt.annotations, "app"); got != tt.want {
			t.Errorf("%s: RequiresPlugin = %t, want %t", name, got, tt.want)
		}
	}
}

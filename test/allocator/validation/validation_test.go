package validation

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install" // registers the API's versions with the scheme
	"k8s.io/kubernetes/pkg/apis/resource/validation"

	"github.com/kata-vfio/kata-vfio/test/allocator/golden"
)

const node = golden.Node

// sliceOf is the only slice of a pool.
func sliceOf(pool string, devices []resourceapi.Device, counters []resourceapi.CounterSet) *resourceapi.ResourceSlice {
	s := golden.Slice(golden.Driver, pool, 0, 1, devices, counters)
	s.Name = "slice" // whatever the pool's name is
	return s
}

// refused returns why the API server refuses to create a slice: by its validation functions, and by the rules that are declared in the
// API's types. Some rules are in one place, some in both.
func refused(t *testing.T, slice *resourceapi.ResourceSlice) error {
	t.Helper()
	slice = slice.DeepCopy()
	legacyscheme.Scheme.Default(slice)
	var internal resource.ResourceSlice
	if err := legacyscheme.Scheme.Convert(slice, &internal, nil); err != nil {
		t.Fatal(err)
	}
	return append(validation.ValidateResourceSlice(&internal), declared(t, legacyscheme.Scheme.Validate, slice)...).ToAggregate()
}

// declared returns what the declared rules say. Their options are a list of those that are on, and from 1.37 on a map of all: the gates
// that the API server names for the rules of a ResourceSlice, with their defaults.
func declared[O []string | map[string]bool](
	t *testing.T, validate func(context.Context, O, runtime.Object, ...string) field.ErrorList, slice *resourceapi.ResourceSlice,
) field.ErrorList {
	t.Helper()
	var options O
	if all, ok := any(&options).(*map[string]bool); ok {
		*all = map[string]bool{"DRAPartitionableDevicesType": false}
	}
	return validate(t.Context(), options, slice)
}

// TestGoldenSlices: the API server takes each slice.
func TestGoldenSlices(t *testing.T) {
	files, err := filepath.Glob("../../../pkg/publish/testdata/*.json")
	if err != nil || len(files) < 8 {
		t.Fatalf("golden files: %d, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			for _, slice := range golden.Slices(t, path) {
				if err := refused(t, slice); err != nil {
					t.Errorf("pool %s: %v", slice.Spec.Pool.Name, err)
				}
			}
		})
	}
}

// TestRefusedSlices: what the API server refuses, so that the test above can fail.
func TestRefusedSlices(t *testing.T) {
	gpu := func() resourceapi.Device { return resourceapi.Device{Name: "gpu-0000-3b-00-0"} }
	for name, test := range map[string]struct {
		slice *resourceapi.ResourceSlice
		want  string
	}{
		"a pool's name of 254 characters":  {sliceOf(node+"/"+strings.Repeat("a", 254-len(node)-1), nil, nil), "spec.pool.name"},
		"a pool's name with an empty part": {sliceOf(node+"/kata-vfio.dev/", nil, nil), "spec.pool.name"},
		"a pool's name with upper case":    {sliceOf(node+"/PF-0000-3b-00-0", nil, nil), "spec.pool.name"},
		"two devices of one name":          {sliceOf(node, []resourceapi.Device{gpu(), gpu()}, nil), "spec.devices[1]"},
		"129 devices":                      {sliceOf(node, many(129), nil), "spec.devices"},
		"devices and counters": {sliceOf(node, []resourceapi.Device{gpu()}, []resourceapi.CounterSet{{
			Name: "unit", Counters: map[string]resourceapi.Counter{"use": {}},
		}}), "spec"},
		"a counter of no set's name": {sliceOf(node, nil, []resourceapi.CounterSet{{Counters: map[string]resourceapi.Counter{"use": {}}}}), "spec.sharedCounters[0].name"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := refused(t, test.slice); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want a refusal of %s", err, test.want)
			}
		})
	}
}

// TestPoolNames: names of pools may be as long as the longest node name that the plugin takes makes them.
func TestPoolNames(t *testing.T) {
	for _, rest := range []string{"", "/shared", "/pf-0000-3b-00-0", "/pf-ffffffff-ff-1f-7"} {
		name := strings.Repeat("n", 253-len("/kata-vfio.dev/pf-ffffffff-ff-1f-7")) + "/kata-vfio.dev" + rest
		if err := refused(t, sliceOf(name, nil, nil)); err != nil {
			t.Errorf("%s: %v", rest, err)
		}
	}
}

func many(n int) []resourceapi.Device {
	all := make([]resourceapi.Device, n)
	for i := range all {
		all[i].Name = fmt.Sprintf("gpu-%d", i)
	}
	return all
}

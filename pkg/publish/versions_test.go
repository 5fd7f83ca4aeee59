package publish_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// versionsOf returns a device's attributes that are versions.
func versionsOf(d resourceapi.Device) map[resourceapi.QualifiedName]string {
	all := map[resourceapi.QualifiedName]string{}
	for name, a := range d.Attributes {
		if a.VersionValue != nil {
			all[name] = *a.VersionValue
		}
	}
	return all
}

func TestVersionsAreOfGPUsAndAsTheAPITakesThem(t *testing.T) {
	for text, want := range map[string]string{
		"v1.2.3": "1.2.3", "4.1.0": "4.1.0", "4.1.0-rc1": "4.1.0-rc1", "4.1": "4.1.0", "v0.0.0-20261126103600-57c70e2abcde+dirty": "0.0.0-20261126103600-57c70e2abcde",
		"3.2.0-0ubuntu1": "3.2.0-0ubuntu1", "": "", "(devel)": "", "unknown": "", "1:2.0.0~rc.1": "",
		"1.0.0-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": "",
	} {
		n := nodeOf(append(pfWith(t, "0000:5e:00.0", 7, 1, 10), hopper(t, "0000:1a:00.0", 1))...)
		n.Versions = publish.Versions{Kata: text}
		all, expected := attributesOf(n), map[resourceapi.QualifiedName]string{}
		if want != "" {
			expected[publish.AttrKataVersion] = want
		}
		if diff := cmp.Diff(expected, versionsOf(all["gpu-0000-1a-00-0"])); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		if got := versionsOf(all["vf-0000-5e-10-0"]); len(got) > 0 {
			t.Errorf("%q: the VF has versions %v, want none", text, got)
		}
	}
}

// An upgrade of the plugin changes attributes of a device that a claim has, and not its name, pool or counters.
func TestUpgradeChangesNoAllocatedDevice(t *testing.T) {
	n := mixed(t)
	n.Allocated = []publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0"}}
	n.Versions = publish.Versions{Plugin: "v0.1.0", Kata: "4.1.0"}
	before := publish.Pools(n)
	n.Versions = publish.Versions{Plugin: "v0.2.0", Kata: "4.2.0"}
	after := publish.Pools(n)
	changed := 0
	ignore := cmp.FilterValues(func(a, b resourceapi.DeviceAttribute) bool { return a.VersionValue != nil && b.VersionValue != nil },
		cmp.Comparer(func(a, b resourceapi.DeviceAttribute) bool {
			if *a.VersionValue != *b.VersionValue {
				changed++
			}
			return true
		}))
	if diff := cmp.Diff(before, after, ignore); diff != "" || changed == 0 {
		t.Errorf("%d versions changed, want some, and nothing else (-want as before +got after):\n%s", changed, diff)
	}
}

// A device with more than the API server takes would have its slice refused.
func TestVersionsLeaveRoom(t *testing.T) {
	const most, name = resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice, "gpu-0000-1a-00-0"
	gpu := hopper(t, "0000:1a:00.0", 1)
	gpu.BARs = nil
	for i := range most - 2 - len(attributesOf(nodeOf(gpu))[name].Attributes) {
		gpu.BARs = append(gpu.BARs, device.BAR{Index: i, Size: 1 << 20})
	}
	n := nodeOf(gpu)
	n.Versions = publish.Versions{Plugin: "1.0.0", Kata: "4.1.0"}
	checkPools(t, publish.Pools(n))
	d := attributesOf(n)[name]
	if got := versionsOf(d); len(got) != 1 || len(d.Attributes)+len(d.Capacity) != most {
		t.Errorf("%d attributes and %d capacities, of which versions %v; want room for one of two", len(d.Attributes), len(d.Capacity), got)
	}
}

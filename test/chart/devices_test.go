package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// valueOf is a value of a kind of attributes.
func valueOf(kind publish.Kind) resourcev1.DeviceAttribute {
	switch kind {
	case publish.Number:
		return resourcev1.DeviceAttribute{IntValue: new(int64(7))}
	case publish.Flag:
		return resourcev1.DeviceAttribute{BoolValue: new(true)}
	case publish.Version:
		return resourcev1.DeviceAttribute{VersionValue: new("1.0.0")}
	case publish.Text:
	}
	return resourcev1.DeviceAttribute{StringValue: new("text")}
}

// full is a device with all attributes and capacities that the plugin publishes.
func full(name string) resourcev1.Device {
	d := resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{}}
	for name, kind := range publish.Attributes() {
		d.Attributes[name] = valueOf(kind)
	}
	for _, name := range publish.Capacities() {
		d.Capacity[name] = resourcev1.DeviceCapacity{Value: resource.MustParse("1Gi")}
	}
	return d
}

func sliceWith(devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: "kata-vfio.dev", Devices: devices}}
}

// TestPolicyForDevicesIsThePublisher: the policy has the publisher's table, so that it takes whatever the plugin publishes and refuses
// each attribute with a value of each other type, which selectors of all tenants would err at.
func TestPolicyForDevicesIsThePublisher(t *testing.T) {
	p := compiled(t, "admission/devices.yaml")
	var most []resourcev1.Device
	for i := range publish.MaxDevices {
		most = append(most, full(fmt.Sprintf("gpu-%d", i)))
	}
	if messages := p.refusals(t, sliceWith(most...)); len(messages) > 0 {
		t.Errorf("what the plugin publishes is refused: %q", messages)
	}
	if messages := p.refusals(t, sliceWith(resourcev1.Device{Name: "bare"})); len(messages) > 0 {
		t.Errorf("a device without attributes is refused: %q", messages)
	}
	if messages := p.refusals(t, sliceWith(append(most, full("one-more"))...)); len(messages) != 1 {
		t.Errorf("one device more: %q", messages)
	}
	kinds := []publish.Kind{publish.Text, publish.Number, publish.Flag, publish.Version}
	for _, name := range slices.Sorted(maps.Keys(publish.Attributes())) {
		for _, kind := range kinds {
			d := full("odd")
			d.Attributes[name] = valueOf(kind)
			refused := p.refusals(t, sliceWith(full("good"), d))
			if want := publish.Misfits(&d); len(refused) != len(want) {
				t.Errorf("%s of kind %s: the policy says %q, the table %q", name, kind, refused, want)
			} else if len(want) > 0 && !strings.HasSuffix(strings.TrimSuffix(refused[0], "<nil>"), ": odd "+string(name)+" (WriteOutOfScope)") {
				t.Errorf("%s of kind %s: the refusal does not name device and attribute alone: %q", name, kind, refused)
			}
		}
	}
}

// TestPolicyForDevicesRefusesOtherNames: a name that selectors take for one of the driver's must not come by another way.
func TestPolicyForDevicesRefusesOtherNames(t *testing.T) {
	p := compiled(t, "admission/devices.yaml")
	for _, name := range []resourcev1.QualifiedName{"kata-vfio.dev/isolated", "Isolated", "resource.kubernetes.io/numaNodes", "other.example.com/type", "new"} {
		d := full("odd")
		d.Attributes[name] = valueOf(publish.Text)
		if refused := p.refusals(t, sliceWith(d)); len(refused) != 1 || len(publish.Misfits(&d)) != 1 {
			t.Errorf("attribute %s: the policy says %q, the table %q", name, refused, publish.Misfits(&d))
		}
		d = full("odd")
		d.Capacity[name] = resourcev1.DeviceCapacity{Value: resource.MustParse("1Gi")}
		if refused := p.refusals(t, sliceWith(d)); len(refused) != 1 || len(publish.Misfits(&d)) != 1 {
			t.Errorf("capacity %s: the policy says %q, the table %q", name, refused, publish.Misfits(&d))
		}
	}
}

package device_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestPairsNameSaysItsFunctions(t *testing.T) {
	gpu := &device.Function{Type: device.GPU, Address: pci.Address{Domain: 1<<32 - 1, Bus: 0xff, Device: 0x1f, Function: 7}}
	vf := &device.Function{Type: device.VFType, Address: pci.Address{Domain: 1<<32 - 1, Bus: 0xfe, Device: 0x1f, Function: 7}}
	name := (&device.Pair{GPU: gpu, VF: vf}).Name()
	if name != "gpu-ffffffff-ff-1f-7-vf-ffffffff-fe-1f-7" || len(validation.IsDNS1123Label(name)) > 0 {
		t.Errorf("got %q", name)
	}
	want := []device.Part{{Name: gpu.Name(), Type: device.GPU, Address: gpu.Address}, {Name: vf.Name(), Type: device.VFType, Address: vf.Address}}
	got, err := device.ParseParts(name)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestParseParts(t *testing.T) {
	for name, ok := range map[string]bool{
		"gpu-0000-3b-00-0": true, "vf-0000-3b-00-0": true, "": false, "gpu-0000-3b-00-0-": false, "-vf-0000-3b-00-0": false,
		"gpu-0000-3b-00-0-vf-0000-3c-00-0-vf-0000-3c-00-1": false, "vf-0000-3b-00-0-vf-0000-3c-00-0": false,
		"gpu-0000-3b-00-0-vf-": false, "gpu-0000-3b-00-0-pf-0000-3c-00-0": false,
	} {
		parts, err := device.ParseParts(name)
		if (err == nil) != ok || ok && (len(parts) != 1 || parts[0].Name != name) {
			t.Errorf("%q: got %v, %v", name, parts, err)
		}
	}
}

func TestNear(t *testing.T) {
	at := func(port uint8, root string, node *int) *device.Function {
		f := &device.Function{Root: root, NUMANode: node}
		if port > 0 {
			f.Switch = &pci.Address{Bus: port}
		}
		return f
	}
	f := at(1, "pci0000:10", new(0))
	for want, g := range map[string]*device.Function{
		"switch": at(1, "pci0000:10", new(0)), "root": at(2, "pci0000:10", nil), "numa": at(0, "pci0000:20", new(0)), "far": at(2, "pci0000:20", new(1)),
	} {
		if got := device.Near(f, g).String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := device.Near(&device.Function{}, &device.Function{}); got != device.Far {
		t.Errorf("what is not known is in common: %s", got)
	}
}

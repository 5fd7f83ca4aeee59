package device_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestAPairsNameSaysItsFunctions(t *testing.T) {
	gpu := &device.Function{Type: device.GPU, Address: pci.Address{Domain: 1<<32 - 1, Bus: 0xff, Device: 0x1f, Function: 7}}
	vf := &device.Function{Type: device.VFType, Address: pci.Address{Domain: 1<<32 - 1, Bus: 0xfe, Device: 0x1f, Function: 7}}
	name := (&device.Pair{GPU: gpu, VF: vf}).Name()
	if name != "gpu-ffffffff-ff-1f-7-vf-ffffffff-fe-1f-7" || len(validation.IsDNS1123Label(name)) > 0 {
		t.Errorf("got %q", name)
	}
	if diff := cmp.Diff([]string{gpu.Name(), vf.Name()}, device.PartNames(name)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"gpu-0000-3b-00-0", "vf-0000-3b-00-0", ""} {
		if diff := cmp.Diff([]string{name}, device.PartNames(name)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
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

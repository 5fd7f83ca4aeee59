package prepare_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestGPUsWithTheSwitchesBetweenThem: a guest with all GPUs of a board gets its NVSwitches too, and everything goes back.
func TestGPUsWithTheSwitchesBetweenThem(t *testing.T) {
	w := newWorld(t)
	w.k.AddDriver("nvidia-nvswitch", sysfstest.Driver{IDs: []sysfstest.Match{sysfstest.MatchID(0x10de, 0x22a3)}})
	var all []pci.Address
	for bus := range uint8(2) {
		all = append(all, w.k.AddGPU(0x40+bus))
	}
	for bus := range uint8(2) {
		w.k.AddRootPort(0x50 + bus)
		f := sysfstest.GPU(pci.Address{Bus: 0x50 + bus})
		f.Device, f.Class, f.Driver = 0x22a3, pci.ClassOtherBridge<<8, "nvidia-nvswitch"
		w.k.Add(f)
		all = append(all, f.Address)
	}
	w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}},
		{Match: v1alpha1.DeviceMatch{Vendors: []pci.ID{0x10de}, Classes: []string{"0680"}}},
	}}
	w.node.Default()
	before := w.bindings()
	rec := w.mustPrepare(w.request(uid, all...))
	if len(rec.Plan.Devices) != len(all) || !w.hasSpec(uid) {
		t.Errorf("%d devices prepared, CDI spec %t; want %d", len(rec.Plan.Devices), w.hasSpec(uid), len(all))
	}
	now := w.bindings()
	for _, a := range all {
		if before[a].Driver == "" || !device.IsVFIO(now[a].Driver) {
			t.Errorf("%s was on %q and is on %q; want a VFIO driver", a, before[a].Driver, now[a].Driver)
		}
	}
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	for a, now := range w.bindings() {
		if now != before[a] {
			t.Errorf("%s is on %+v after the claim, want %+v", a, now, before[a])
		}
	}
}

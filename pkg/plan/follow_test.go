package plan_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// cards returns a boot's node whose GPUs have the serial numbers, each on a bus of its own.
func cards(boot string, serials map[uint8]string) *device.Snapshot {
	var fns []device.Function
	for bus, serial := range serials {
		f := on(pci.Address{Bus: bus}, 0x030200, "nvidia", int(bus))
		f.Capabilities.Serial = serial
		fns = append(fns, f)
	}
	s := assemble(fns)
	s.Host.BootID = boot
	return s
}

// TestFollowMovesFunctionsTogether: a card that is added renumbers the buses behind it, so that a function comes to
// where another one was.
func TestFollowMovesFunctionsTogether(t *testing.T) {
	former := map[uint8]string{0x3b: "a", 0x3c: "b"}
	for name, tt := range map[string]struct {
		former, now map[uint8]string
		want        []uint8 // buses by that of before; 0 if the function is gone
	}{
		"stays":                             {former, former, []uint8{0x3b, 0x3c}},
		"shift":                             {former, map[uint8]string{0x3b: "new", 0x3c: "a", 0x3d: "b"}, []uint8{0x3c, 0x3d}},
		"shift down":                        {former, map[uint8]string{0x3a: "a", 0x3b: "b"}, []uint8{0x3a, 0x3b}},
		"swap":                              {former, map[uint8]string{0x3b: "b", 0x3c: "a"}, []uint8{0x3c, 0x3b}},
		"the second is gone":                {former, map[uint8]string{0x3b: "new", 0x3c: "a"}, []uint8{0, 0}},
		"the first is gone":                 {former, map[uint8]string{0x3b: "b"}, []uint8{0, 0}},
		"one that can't move is in the way": {map[uint8]string{0x3b: "a", 0x3c: "b", 0x3d: "c"}, map[uint8]string{0x3c: "a", 0x3d: "b"}, []uint8{0, 0, 0}},
		"one serial number, one card":       {map[uint8]string{0x3b: "a", 0x3c: "a"}, map[uint8]string{0x3d: "a"}, []uint8{0, 0}},
	} {
		before, after := cards("boot", tt.former), cards("next", tt.now)
		p := plan.Plan{}
		for i := range before.Functions {
			f := &before.Functions[i]
			p.Functions = append(p.Functions, plan.Function{Address: f.Address, Identity: before.Identify(f), Group: *f.Group})
			p.Devices = append(p.Devices, plan.Device{Address: f.Address})
		}
		for i := range after.Functions {
			after.Functions[i].Inode = uint64(100 + i)
		}
		next := p.Follow(after)
		for i, bus := range tt.want {
			fn := &next.Functions[i]
			_, there := fn.In(after)
			if want := (pci.Address{Bus: bus}); there != (bus != 0) || there && (fn.Address != want || next.Devices[i].Address != want || fn.Group != int(bus)) {
				t.Errorf("%s: function %d is at %s, found: %t, device at %s; want bus %#x", name, i, fn.Address, there, next.Devices[i].Address, bus)
			}
			if bus == 0 && fn.Address != p.Functions[i].Address {
				t.Errorf("%s: function %d is gone and has moved to %s", name, i, fn.Address)
			}
		}
	}
}

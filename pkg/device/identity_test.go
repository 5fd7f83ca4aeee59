package device_test

import (
	"reflect"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// card is a device of one model in a slot of the node.
func card(bus, port uint8, serial string) device.Function {
	return device.Function{
		Address: pci.Address{Bus: bus}, Vendor: 0x10de, Device: 0x2330, SubVendor: 0x10de, SubDevice: 0x16c1, Class: 0x030200, Revision: 0xa1,
		Root: "pci0000:00", Upstream: []pci.Address{{Device: port}}, Capabilities: pci.Capabilities{Serial: serial}, Inode: 7 + uint64(bus),
	}
}

func boot(id string, fns ...device.Function) *device.Snapshot {
	return &device.Snapshot{Functions: fns, Host: device.Host{BootID: id}}
}

// TestIdentityAcrossBoots: serial numbers decide where both have one, otherwise model and slot do.
func TestIdentityAcrossBoots(t *testing.T) {
	const a, b = "00-00-00-00-00-00-00-0a", "00-00-00-00-00-00-00-0b"
	other := card(0x3b, 1, "")
	other.Device = 0x2335
	flashed := card(0x3b, 1, a)
	flashed.SubDevice++
	second := card(0x3b, 1, a)
	second.Address.Function = 1
	for name, c := range map[string]struct {
		then, now device.Function
		want      device.Match
	}{
		"nothing has changed":                         {card(0x3b, 1, ""), card(0x3b, 1, ""), device.Agrees},
		"its bus has another number":                  {card(0x3b, 1, ""), card(0x3c, 1, ""), device.Agrees},
		"it is in another slot":                       {card(0x3b, 1, ""), card(0x3b, 2, ""), device.Undecided},
		"another model is in its slot":                {card(0x3b, 1, ""), other, device.Differs},
		"another card of its model is in its slot":    {card(0x3b, 1, a), card(0x3b, 1, b), device.Differs},
		"it has a serial number and is elsewhere":     {card(0x3b, 1, a), card(0x41, 5, a), device.Agrees},
		"its serial number is out of reach":           {card(0x3b, 1, a), card(0x3b, 1, ""), device.Undecided},
		"its firmware was changed":                    {card(0x3b, 1, a), flashed, device.Undecided},
		"another function of its card":                {card(0x3b, 1, a), second, device.Differs},
		"its slot is not known, as in a tree by hand": {card(0x3b, 1, ""), device.Function{Address: pci.Address{Bus: 0x3b}, Vendor: 0x10de, Device: 0x2330, SubVendor: 0x10de, SubDevice: 0x16c1, Class: 0x030200, Revision: 0xa1}, device.Undecided},
	} {
		t.Run(name, func(t *testing.T) {
			then, now := boot("one", c.then), boot("two", c.now)
			id := then.Identify(&then.Functions[0])
			if got := id.Match(now.Identify(&now.Functions[0])); got != c.want {
				t.Errorf("Match = %v, want %v", got, c.want)
			}
			if id.Is(now.Identify(&now.Functions[0])) {
				t.Error("it is the very function, after a boot")
			}
		})
	}
}

// TestIdentityWithinABoot: a function that was removed is another one when it is back.
func TestIdentityWithinABoot(t *testing.T) {
	then := boot("one", card(0x3b, 1, ""))
	back := card(0x3b, 1, "")
	back.Inode = 99
	now := boot("one", back)
	id := then.Identify(&then.Functions[0])
	if !id.Is(then.Identify(&then.Functions[0])) {
		t.Error("the function is not itself")
	}
	if got := now.Identify(&now.Functions[0]); id.Is(got) || id.Match(got) != device.Agrees {
		t.Errorf("Is = %t, Match = %v, want the same hardware and another function", id.Is(got), id.Match(got))
	}
	if unknown := (device.Identity{BootID: "one"}); unknown.Is(unknown) {
		t.Error("without an inode, two functions are the same one")
	}
}

// TestIdentityOfAVF is its PF's, with its index.
func TestIdentityOfAVF(t *testing.T) {
	pf := card(0x21, 1, "00-00-00-00-00-00-00-0a")
	pf.PF = &device.PF{}
	vf := func(index int) device.Function {
		f := card(0x21, 1, "")
		f.Address = pci.Address{Bus: 0x21, Device: 2, Function: uint8(index)}
		f.VF, f.Inode = &device.VF{PF: pf.Address, Index: index}, 50+uint64(index)
		return f
	}
	s := boot("one", pf, vf(0), vf(1))
	first, second := s.Identify(&s.Functions[1]), s.Identify(&s.Functions[2])
	if first.Serial != pf.Capabilities.Serial || first.Slot != "pci0000:00/01.0/00.0/vf0" {
		t.Errorf("serial number %q, slot %q", first.Serial, first.Slot)
	}
	if got := first.Match(second); got != device.Differs {
		t.Errorf("the first VF and the second: %v", got)
	}
}

// TestFind: the function that had an identity is looked for on the whole node.
func TestFind(t *testing.T) {
	const a = "00-00-00-00-00-00-00-0a"
	find := func(then device.Function, now ...device.Function) (at pci.Address, sure bool, perhaps int) {
		t.Helper()
		s := boot("one", then)
		id, later := s.Identify(&s.Functions[0]), boot("two", now...)
		found := later.Find(id)
		if again := device.NewFinder(later).Find(id); !reflect.DeepEqual(found, again) {
			t.Errorf("a Finder finds %+v, want %+v as the snapshot does", again, found)
		}
		for _, boot := range []string{"one", "two"} { // the very function only in its boot
			moved := *later
			moved.Host.BootID = boot
			if got, want := device.NewFinder(&moved).Find(id), moved.Find(id); !reflect.DeepEqual(got, want) {
				t.Errorf("in boot %s a Finder finds %+v, want %+v as the snapshot does", boot, got, want)
			}
		}
		if found.Function != nil {
			at = found.Function.Address
		}
		return at, found.Sure, len(found.Perhaps)
	}
	if at, sure, _ := find(card(0x3b, 1, ""), card(0x3c, 1, ""), card(0x3d, 2, "")); at.Bus != 0x3c || !sure {
		t.Errorf("in its slot, with another bus number: %s, sure: %t", at, sure)
	}
	if at, sure, _ := find(card(0x3b, 1, a), card(0x3b, 1, "00-00-00-00-00-00-00-0b"), card(0x3d, 2, a)); at.Bus != 0x3d || !sure {
		t.Errorf("by its serial number: %s, sure: %t", at, sure)
	}
	if at, _, perhaps := find(card(0x3b, 1, ""), card(0x3c, 2, ""), card(0x3d, 3, "")); at != (pci.Address{}) || perhaps != 2 {
		t.Errorf("in another slot: %s, or one of %d, want one of two", at, perhaps)
	}
	if at, sure, _ := find(card(0x3b, 1, a), card(0x3b, 1, ""), card(0x3d, 2, "")); at.Bus != 0x3b || sure {
		t.Errorf("its serial number is out of reach: %s, sure: %t", at, sure)
	}
	if at, _, perhaps := find(card(0x3b, 1, a), card(0x3c, 2, a), card(0x3d, 3, a)); at != (pci.Address{}) || perhaps != 2 {
		t.Errorf("cards that share a serial number: %s, or one of %d, want one of two", at, perhaps)
	}
}

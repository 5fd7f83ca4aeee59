package plan_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// TestDrainRefusesWhatItLists: what goes out of use by one function's drain is exactly
// what no claim gets on its account.
func TestDrainRefusesWhatItLists(t *testing.T) {
	s := fixture()
	for i := range s.Functions {
		named := &s.Functions[i]
		set, drains := plan.DrainSet(s, named), plan.NewDrains(s, map[pci.Address]bool{named.Address: true})
		for j := range s.Functions {
			f := &s.Functions[j]
			if f.IsBridge() {
				continue
			}
			a, refused := drains.Find(f)
			listed := slices.ContainsFunc(set, func(d *device.Function) bool { return d.Address == f.Address })
			if refused != listed || refused && a != named.Address {
				t.Errorf("drain of %s: %s is refused: %t (by %s), want %t", named.Address, f.Address, refused, a, listed)
			}
		}
	}
}

// TestFunctionsOwnDrainSpeaksFirst: that is the one which an undrain of it lifts.
func TestFunctionsOwnDrainSpeaksFirst(t *testing.T) {
	s := fixture()
	vf, _ := s.Function(nicVF)
	for want, named := range map[pci.Address]map[pci.Address]bool{nicVF: {nic: true, nicVF: true}, nic: {nic: true}} {
		if got, ok := plan.NewDrains(s, named).Find(vf); !ok || got != want {
			t.Errorf("the drain is %s, %t; want %s", got, ok, want)
		}
	}
}

package prepare_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestSecondFunctionOfAGroupNeedsHotPlug: by the group's node Kata gives a VM that boots the first function alone, and one
// that runs all of them.
func TestSecondFunctionOfAGroupNeedsHotPlug(t *testing.T) {
	for _, hot := range []bool{false, true} {
		w := newWorld(t)
		w.k.AddRootPort(0x3b)
		first, second := sysfstest.GPU(pci.Address{Bus: 0x3b}), sysfstest.GPU(pci.Address{Bus: 0x3b, Function: 1})
		first.Group, second.Group = 40, 40
		w.k.Add(first, second)
		p := w.plugin(nil, func(c *prepare.Config) { c.HotPlug = hot })
		_, err := p.Prepare(t.Context(), w.request("uid-1", second.Address))
		if refused := err != nil && strings.Contains(err.Error(), "Kata plugs the first function, "+first.Address.String()); refused == hot || hot && err != nil {
			t.Errorf("hot plug %t: Prepare = %v, want a refusal: %t", hot, err, !hot)
		}
	}
}

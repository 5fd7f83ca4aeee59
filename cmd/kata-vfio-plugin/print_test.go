package main

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// TestTakes: a card's ninth function has another device number (ARI), and a function of the root complex with the same bus
// is of another card.
func TestTakes(t *testing.T) {
	gpu := pci.Address{Bus: 0x70}
	companion := func(device, function uint8, first *pci.Address) plan.Function {
		a := pci.Address{Bus: 0x70, Device: device, Function: function}
		return plan.Function{Address: a, Group: 2, Role: plan.RoleCompanion, FirstFunction: first}
	}
	pl := &plan.Plan{Functions: []plan.Function{
		{Address: gpu, Group: 1, Role: plan.RoleDevice}, companion(0, 1, nil), companion(1, 0, &gpu), companion(2, 0, nil),
	}}
	const want = "0000:70:00.0, companions .1 0000:70:01.0"
	if got := takes(pl, &plan.Device{Address: gpu}); got != want {
		t.Errorf("takes %q, want %q", got, want)
	}
}

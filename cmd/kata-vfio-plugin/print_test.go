package main

import (
	"strings"
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

// TestPlanSaysThatADriversNameIsAGuess: a variant registers its driver under a name that its module does not say.
func TestPlanSaysThatADriversNameIsAGuess(t *testing.T) {
	for module, guess := range map[string]bool{"xe_vfio_pci": true, "vfio_pci": false, "": false} {
		pl := &plan.Plan{Functions: []plan.Function{{Target: plan.Binding{Driver: "xe_vfio_pci"}}}}
		if module == "vfio_pci" {
			pl.Functions[0].Target.Driver = "vfio-pci"
		}
		if module != "" {
			pl.Modules = []string{module}
		}
		var out strings.Builder
		if err := printPlan(&out, "table", pl); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(out.String(), "its driver may have another name"); said != guess {
			t.Errorf("module %q: %s", module, out.String())
		}
	}
}

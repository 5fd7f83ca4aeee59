package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
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

// TestPlansFitTheTerminal: no line of `plan --all` is longer than the terminal, and each device keeps its answer and what it takes.
func TestPlansFitTheTerminal(t *testing.T) {
	gpu := pci.Address{Bus: 0x70}
	pl := &plan.Plan{
		Devices:   []plan.Device{{Name: "gpu-0000-70-00-0", Address: gpu, Backend: v1alpha1.BackendIOMMUFD, Resets: []isolation.Reset{{Method: "vfio_hot_reset"}}}},
		Functions: []plan.Function{{Address: gpu, Role: plan.RoleDevice}},
		Steps:     make([]plan.Step, 12),
	}
	for fn := range uint8(7) {
		pl.Functions = append(pl.Functions, plan.Function{Address: pci.Address{Bus: 0x71, Device: fn}, Role: plan.RoleGroupMate})
	}
	plans := []devicePlan{{Device: "gpu-0000-70-00-0", Plan: pl}, {Device: "vf-0000-21-02-0"}}
	for _, width := range []int{60, 80, 100, 120, 160} {
		lines := planLines(plans, width)
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("at %d columns, a line has %d:\n%s", width, n, line)
			}
		}
		text := strings.Join(lines, "\n")
		for _, want := range []string{"gpu-0000-70-00-0", "accepted", "vf-0000-21-02-0", "refused", "0000:71:06.0"} {
			if !strings.Contains(text, want) {
				t.Errorf("at %d columns, the table lacks %q:\n%s", width, want, text)
			}
		}
		if got, want := strings.Contains(text, "narrow: STEPS"), width <= 80; got != want {
			t.Errorf("at %d columns, STEPS left out is %t, want %t:\n%s", width, got, want, text)
		}
	}
}

// TestPlanShowsAllFunctionsOfADevice that has several: a claim takes both functions of a pair, and each GPU of a partition.
func TestPlanShowsAllFunctionsOfADevice(t *testing.T) {
	gpu, nic := pci.Address{Bus: 0x70}, pci.Address{Bus: 0x21, Device: 2}
	device := func(a pci.Address, backend v1alpha1.Backend) plan.Device {
		return plan.Device{Address: a, Backend: backend, Resets: []isolation.Reset{{Method: "flr"}}}
	}
	for want, devices := range map[string][]plan.Device{
		"Group           flr    0000:70:00.0; 0000:21:02.0": {device(gpu, v1alpha1.BackendGroup), device(nic, v1alpha1.BackendGroup)},
		"Group, IOMMUFD  flr    0000:70:00.0; 0000:21:02.0": {device(gpu, v1alpha1.BackendGroup), device(nic, v1alpha1.BackendIOMMUFD)},
	} {
		pl := &plan.Plan{Devices: devices, Functions: []plan.Function{{Address: gpu, Group: 1}, {Address: nic, Group: 2}}}
		lines := planLines([]devicePlan{{Device: "gpu-vf", Plan: pl}}, 0)
		if got := strings.Join(strings.Fields(lines[1]), " "); !strings.HasSuffix(got, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("got %q, want %q", lines[1], want)
		}
	}
}

// TestPlanSaysHowEachStepIsDone: a step whose way is blank looks as if nothing was written.
func TestPlanSaysHowEachStepIsDone(t *testing.T) {
	for op, want := range map[plan.Op]string{
		plan.Load: "modprobe v", plan.Unbind: "drivers/d/unbind", plan.Override: "driver_override: f -> v", plan.Probe: "drivers_probe",
		plan.Reset: "v of ", plan.ConfigureVF: "PF: v", plan.TakeAddress: "from pool v", plan.ReturnAddress: "to pool v",
		plan.SetValue: "xe, exec_quantum_ms: f -> v",
	} {
		step := plan.Step{Operation: op, DriverBefore: "d", Former: "f", Value: "v", Provider: "xe", Setting: "exec_quantum_ms"}
		if got := by(step); got != want {
			t.Errorf("%s: got %q, want %q", op, got, want)
		}
	}
}

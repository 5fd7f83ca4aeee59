package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// bindings returns every binding of a small world.
func bindings() []plan.Binding {
	var all []plan.Binding
	for _, driver := range []string{"", "nvidia", "vfio-pci"} {
		for _, override := range []string{"", "nvidia", "vfio-pci"} {
			all = append(all, plan.Binding{Driver: driver, Override: override})
		}
	}
	return all
}

// TestTransitionsInvert checks the rule that undo and recovery rest on: the
// way back is the way there, step by step inverted, in reverse order.
func TestTransitionsInvert(t *testing.T) {
	for _, from := range bindings() {
		for _, to := range bindings() {
			if foreign(from) || foreign(to) {
				continue
			}
			var undo []plan.Step
			for _, s := range slices.Backward(plan.Transition(gpuAddr, from, to)) {
				inverse, ok := s.Inverse()
				if !ok {
					t.Fatalf("%v has no inverse, want one", s)
				}
				undo = append(undo, inverse)
			}
			if diff := cmp.Diff(plan.Transition(gpuAddr, to, from), undo); diff != "" {
				t.Errorf("from %+v to %+v (-want the transition back +got the inverses):\n%s", from, to, diff)
			}
		}
	}
}

// foreign reports whether the override names another driver than the bound one.
func foreign(b plan.Binding) bool {
	return b.Driver != "" && b.Override != "" && b.Override != b.Driver
}

// TestTransitionsArrive follows each step's own account of before and after,
// and checks that no probe meets an override that forbids its driver.
func TestTransitionsArrive(t *testing.T) {
	for _, from := range bindings() {
		for _, to := range bindings() {
			now := from
			for _, s := range plan.Transition(gpuAddr, from, to) {
				if s.DriverBefore != now.Driver {
					t.Errorf("%v: driver before is %q, want %q", s, s.DriverBefore, now.Driver)
				}
				if s.Operation == plan.Probe && now.Override != "" && now.Override != s.DriverAfter {
					t.Errorf("from %+v to %+v: %v while the override is %s, want a probe for that driver", from, to, s, now.Override)
				}
				now.Driver = s.DriverAfter
				if s.Operation == plan.Override {
					now.Override = s.Value
				}
			}
			if now != to {
				t.Errorf("from %+v the steps lead to %+v, want %+v", from, now, to)
			}
		}
	}
}

func TestReleaseGoesBack(t *testing.T) {
	s := fixture()
	p, err := plan.Make(asking(s, gpuAddr), node(s))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, step := range p.StepsFor(plan.AtPrepared, slices.Concat(plan.Cleaning(), plan.GivingBack())...) {
		got = append(got, step.String())
	}
	want := []string{
		"reset 0000:3b:00.0 by flr",
		"unbind 0000:3b:00.0 from vfio-pci",
		"clear driver_override of 0000:3b:00.0",
		"probe 0000:3b:00.0 for nvidia",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("release (-want +got):\n%s", diff)
	}
}

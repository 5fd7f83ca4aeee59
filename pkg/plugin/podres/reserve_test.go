package podres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// TestPodFollowsAnotherOnTheSameClaim: a pod was deleted by force and came
// back, under its name or another, before the kubelet had unprepared the claim.
// The kubelet then gives the claim to the new pod without a call of the driver.
func TestPodFollowsAnotherOnTheSameClaim(t *testing.T) {
	w := newWorld(t)
	w.prepared(record("c1", "p0", gpu))
	w.lists(dynamic("c1", gpu))
	w.startKubelet()
	cfg := w.config()
	asked := 0
	w.reserve = func(c plan.Ref) error {
		asked++
		if c.UID != "c1" {
			t.Errorf("asked to reserve %v", c)
		}
		w.prepared(record("c1", "p1", gpu))
		return nil
	}
	w.start(cfg)
	for range 2 {
		answer, err := w.get()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"kata-vfio.dev/vfio=c1-" + gpu}, plugged(answer)); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
}

// TestClaimThatCantGoOver: the other pod is still there, or what came of it is
// not this pod's either.
func TestClaimThatCantGoOver(t *testing.T) {
	for name, reserve := range map[string]func() error{
		"shared":            func() error { return errors.New("it is reserved for db-0 and db-1") },
		"still the other's": func() error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.prepared(record("c1", "p0", gpu))
			w.lists(dynamic("c1", gpu))
			w.startKubelet()
			cfg := w.config()
			w.reserve = func(plan.Ref) error { return reserve() }
			w.start(cfg)
			answer, err := w.get()
			if err == nil || !strings.Contains(err.Error(), "db-0 (UID p0)") {
				t.Fatalf("Get = %v, %v; want an error that names the other pod", plugged(answer), err)
			}
			if why := reserve(); why != nil && !strings.Contains(err.Error(), why.Error()) {
				t.Errorf("error %q does not say %q", err, why)
			}
		})
	}
}

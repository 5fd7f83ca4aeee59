package prepare_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

const burst = 20

func newRation() *prepare.Ration { return &prepare.Ration{Burst: burst, Pause: time.Minute} }

// TestLoopIsCutShortAndCounted: a namespace that asks in a loop gets the burst and
// one a minute, all others are counted, and another namespace gets its own.
func TestLoopIsCutShortAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRation()
		granted, left := 0, 0
		take := func(namespace string) bool {
			ok, leftOut := r.Take(namespace)
			if ok {
				granted, left = granted+1, left+leftOut
			}
			return ok
		}
		for range 1000 {
			take("loop")
			time.Sleep(time.Second)
		}
		if most := burst + 1000/60 + 1; granted > most || granted < burst {
			t.Errorf("%d of 1000 are granted, want %d to %d", granted, burst, most)
		}
		time.Sleep(time.Hour)
		if !take("loop") || granted+left != 1001 {
			t.Errorf("after an hour %d are granted and %d counted, want all 1001", granted, left)
		}
		if !take("another") {
			t.Error("another namespace gets nothing")
		}
	})
}

func TestReturnKeepsTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRation()
		for range burst + 3 {
			r.Take("loop")
		}
		time.Sleep(time.Minute)
		for range 2 {
			ok, leftOut := r.Take("loop")
			if !ok || leftOut != 3 {
				t.Fatalf("granted %t with %d left out, want it granted with 3", ok, leftOut)
			}
			r.Return("loop", leftOut)
		}
	})
}

// TestManyNamespacesAreNoLeak asks for more namespaces than are remembered.
func TestManyNamespacesAreNoLeak(t *testing.T) {
	r := newRation()
	for range burst {
		r.Take("first")
	}
	for i := range 5000 {
		if ok, _ := r.Take(fmt.Sprint("namespace-", i)); !ok {
			t.Fatalf("namespace %d gets nothing, want its ration", i)
		}
	}
	if ok, _ := r.Take("first"); !ok {
		t.Error("the first namespace is remembered behind 5000 others")
	}
}

package podres_test

import (
	"fmt"
	"testing"
)

// BenchmarkGet is what a sandbox waits for: 100 claims on the node, a kubelet
// that answers at once, and a new connection each time.
func BenchmarkGet(b *testing.B) {
	w := newWorld(b)
	for i := range 99 {
		w.prepared(record(fmt.Sprintf("x%02d", i), fmt.Sprintf("other-%02d", i), gpu))
	}
	w.prepared(record("c1", "p1", gpu))
	w.lists(dynamic("c1", gpu))
	w.startKubelet()
	w.start(w.config())
	for b.Loop() {
		if answer, err := w.get(); err != nil || len(plugged(answer)) != 1 {
			b.Fatalf("Get = %v, %v", plugged(answer), err)
		}
	}
}

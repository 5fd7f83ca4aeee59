package utilization

import (
	"math/rand/v2"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// TestAllocatorAnswersForAllNodes asks the scheduler's allocator about a node among others, in states of all of them, and compares
// with what is remembered for one node.
func TestAllocatorAnswersForAllNodes(t *testing.T) {
	const nodes = 4
	a, s, random := allocator(t), newScheduler(), rand.New(rand.NewPCG(1, 1))
	if len(s.names) != PerNode {
		t.Fatalf("GPUs %v, want %d", s.names, PerNode)
	}
	var all []*resourceapi.ResourceSlice
	for i := range nodes {
		all = append(all, Slices(i)...)
	}
	fitted := 0
	for range 200 {
		count, on := 1+random.IntN(PerNode), random.IntN(nodes)
		allocated, of := s.allocated("", 0), [nodes]gpus{}
		for i := range of {
			of[i] = gpus(random.Uint32() & random.Uint32())
			allocated = allocated.Union(s.allocated(fleet.Name(i), of[i]))
		}
		want, err := s.ask(t.Context(), all, fleet.Name(on), allocated, count)
		if err != nil {
			t.Fatal(err)
		}
		got := a.allocate(of[on], count)
		if got != want {
			t.Fatalf("%d GPUs beside %08b: %08b, want %08b", count, of[on], got, want)
		}
		if fits := PerNode-of[on].count() >= count; fits != (got != 0) || got&of[on] != 0 || fits && got.count() != count {
			t.Fatalf("%d GPUs beside %08b: %08b", count, of[on], got)
		}
		if got != 0 {
			fitted++
		}
	}
	if fitted < 50 || fitted > 190 {
		t.Errorf("%d of 200 claims fit: the states are not test", fitted)
	}
}

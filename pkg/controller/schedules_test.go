package controller

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/test/contend"
)

// TestRandomSchedules runs schedules of tenants, drivers and faults against controllers that restart, and one that lost its
// lease without knowing and writes late: never two consumers, and nothing is lost. KATA_VFIO_SCHEDULES says how many, and
// KATA_VFIO_SEED repeats the schedules from a seed on.
func TestRandomSchedules(t *testing.T) {
	n, seed := number(t, "KATA_VFIO_SCHEDULES", 200), number(t, "KATA_VFIO_SEED", time.Now().UnixNano()%1_000_000)
	t.Logf("%d schedules from seed %d on", n, seed)
	for i := range n {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { schedule(t, uint64(seed+i)) })
		})
	}
}

func number(t *testing.T, variable string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

func schedule(t *testing.T, seed uint64) {
	const contended = 40 * time.Second
	s, random := newAPIServer(t), &lockedRandom{rng: rand.New(rand.NewPCG(seed, 1))}
	over := time.Now().Add(contended)
	var wg sync.WaitGroup
	wg.Go(func() {
		for time.Now().Before(over) {
			c := lead(t, s, nil)
			time.Sleep(random.upTo(15 * time.Second))
			c.stop()
			time.Sleep(random.upTo(3 * time.Second))
		}
	})
	wg.Go(func() {
		c := lead(t, s, func(a clienttesting.Action) error {
			if late := a.GetVerb() == "create" || a.GetVerb() == "patch" || a.GetVerb() == "delete"; late && time.Now().Before(over) {
				time.Sleep(random.upTo(8 * time.Second))
			}
			return nil
		})
		time.Sleep(time.Until(over))
		c.stop()
		lead(t, s, nil)
	})
	err := contend.Run(t.Context(), contend.Config{Client: s.client(nil), Namespace: "tenants", Node: nodeA, Seed: seed, For: contended})
	if err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// lockedRandom is safe for concurrent use.
type lockedRandom struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (r *lockedRandom) upTo(limit time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.rng.Int64N(int64(limit)))
}

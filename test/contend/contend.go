// Package contend makes tenants contend for a GPU that two DRA drivers publish, by random schedules on an API server, real or
// not. The test runs the controller. This package scripts the scheduler, the kubelet, both drivers and their faults: a
// scheduler that reads stale rules, claims that tolerate every taint, slices that come and go, drivers that are slow or dead,
// and pods that are deleted by force.
package contend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// Driver is the other DRA driver.
const Driver = "gpu.example.com"

// Config is one schedule.
type Config struct {
	// Client may do all that scheduler, kubelet, drivers and tenants do.
	Client kubernetes.Interface
	// Namespace has the claims. Node names the node, its pools and the claims.
	Namespace, Node string
	// Seed decides what happens, except for what the goroutines' order decides.
	Seed uint64
	// For is how long tenants contend, before all faults end.
	For time.Duration
}

// A scheduler allocates by a view that is usually younger than stale. The controller assumes that it is younger than grace.
const (
	grace = time.Duration(twin.Grace) * time.Millisecond
	stale = grace - 500*time.Millisecond
)

// contest is one run of a schedule.
type contest struct {
	Config
	twins []string // the other driver's devices: two are parts of the GPU

	mu      sync.Mutex // guards all below
	rng     *rand.Rand
	history []string
	faults  []error
	began   time.Time
	// The function: its kernel driver, whether it is quarantined, and who uses it.
	kernel      string
	quarantined bool
	// assigned is the claim that the plugin has the function for, vm the one whose VM runs.
	assigned, vm string
	containers   map[string]bool
	// taken are devices that the scheduler works on, allocated those that claims have. careless are claims that tolerate
	// taints, or were allocated by a view that is older than the controller assumes.
	taken, allocated map[string]string
	careless         map[string]bool
	// reserved is the claim of ours that the controller has answered with TwinReserved, while it is allocated.
	reserved string
}

// Run runs a schedule: tenants contend, then all faults end. It returns what went wrong, with the history: two consumers, a
// reservation while a claim of a scheduler that is not staler than assumed has the other side, a rule that stays, or a side
// that can't be allocated any more.
func Run(ctx context.Context, c Config) error {
	r := &contest{
		Config: c, rng: rand.New(rand.NewPCG(c.Seed, 0)), began: time.Now(), kernel: host, twins: []string{"gpu-0"},
		containers: map[string]bool{}, taken: map[string]string{}, allocated: map[string]string{}, careless: map[string]bool{},
	}
	if r.chance(30) {
		r.twins = []string{"mig-0", "mig-1"}
	}
	err := r.setUp(ctx)
	if err == nil {
		r.contend(ctx)
		err = r.recover(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err = errors.Join(append(r.faults, err)...); err != nil {
		return fmt.Errorf("schedule %d: %w; its history:\n%s", c.Seed, err, strings.Join(r.history, "\n"))
	}
	return nil
}

func (r *contest) setUp(ctx context.Context) error {
	for _, name := range []string{"vm-0", "vm-1", "container-0", "container-1"} {
		if err := r.createClaim(ctx, r.claim(name)); err != nil {
			return err
		}
	}
	return errors.Join(r.publishOurs(ctx), r.publishTwins(ctx))
}

// contend runs the tenants and the drivers' faults side by side.
func (r *contest) contend(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.For)
	defer cancel()
	var wg sync.WaitGroup
	for _, actor := range []func(context.Context){
		func(ctx context.Context) { r.startVM(ctx, r.claim("vm-0")) }, func(ctx context.Context) { r.startVM(ctx, r.claim("vm-1")) },
		func(ctx context.Context) { r.startContainer(ctx, r.claim("container-0")) },
		func(ctx context.Context) { r.startContainer(ctx, r.claim("container-1")) },
		r.outage,
	} {
		wg.Go(func() {
			for r.pause(ctx, 2*time.Second) {
				actor(ctx)
			}
		})
	}
	wg.Wait()
}

// recover ends all faults, and checks that nothing is lost.
func (r *contest) recover(ctx context.Context) error {
	r.locked("all faults end", func() {
		r.kernel, r.quarantined, r.assigned, r.vm, r.reserved = host, false, "", "", ""
		clear(r.containers)
		clear(r.taken)
		clear(r.allocated)
	})
	for _, name := range []string{"vm-0", "vm-1", "container-0", "container-1"} {
		if err := r.deallocate(ctx, r.claim(name)); err != nil {
			return err
		}
	}
	if err := errors.Join(r.publishOurs(ctx), r.publishTwins(ctx)); err != nil {
		return err
	}
	if err := r.await(ctx, "no rule is left", r.noRules); err != nil {
		return err
	}
	for _, name := range r.twins {
		if err := r.allocate(ctx, r.claim("container-0"), r.twin(name)); err != nil {
			return fmt.Errorf("allocate %s at the end: %w", name, err)
		}
		if err := r.deallocate(ctx, r.claim("container-0")); err != nil {
			return err
		}
	}
	// The rule that kept our side from claims meanwhile is to go first.
	if err := r.await(ctx, "no rule is left after the other side was used", r.noRules); err != nil {
		return err
	}
	if err := r.allocate(ctx, r.claim("vm-0"), r.ours()); err != nil {
		return fmt.Errorf("allocate our device at the end: %w", err)
	}
	if err := r.await(ctx, "our device is reserved", func(ctx context.Context) error {
		if answer, err := r.answer(ctx, r.claim("vm-0")); err != nil || answer != v1alpha1.ConditionTwinReserved {
			return fmt.Errorf("the answer is %q, %w", answer, err)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := r.deallocate(ctx, r.claim("vm-0")); err != nil {
		return err
	}
	return r.await(ctx, "no rule is left after ours was used", r.noRules)
}

// await tries until it works, for half a minute.
func (r *contest) await(ctx context.Context, what string, try func(context.Context) error) error {
	var err error
	for range 150 {
		if err = try(ctx); err == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("it was never so that %s: %w", what, err)
}

// claim is the name of a claim of this schedule.
func (r *contest) claim(name string) string { return r.Node + "-" + name }

// chance is true in so many of a hundred cases.
func (r *contest) chance(percent int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(100) < percent
}

// pause sleeps for a random time of at most limit. It reports whether the schedule goes on.
func (r *contest) pause(ctx context.Context, limit time.Duration) bool {
	r.mu.Lock()
	d := time.Duration(r.rng.Int64N(int64(limit)))
	r.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// locked does something to the state, notes it, and checks that there is one consumer.
func (r *contest) locked(what string, do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	r.note(what)
	if r.vm != "" && len(r.containers) > 0 {
		r.fault("VM of %s and containers of %v have the GPU", r.vm, r.containers)
	}
}

// note adds to the history. The caller holds mu.
func (r *contest) note(what string) {
	r.history = append(r.history, fmt.Sprintf("%7.3f %s", time.Since(r.began).Seconds(), what))
}

// fault records what must never be. The caller holds mu.
func (r *contest) fault(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if !slices.ContainsFunc(r.faults, func(e error) bool { return e.Error() == err.Error() }) {
		r.faults = append(r.faults, err)
	}
	r.note("FAULT: " + err.Error())
}

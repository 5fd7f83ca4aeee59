package contend

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Kernel drivers of the function.
const (
	host = "nvidia"
	vfio = "vfio-pci"
)

// startVM has the scheduler allocate our device to a claim, waits for the controller's answer, and has the plugin prepare
// the claim. The VM runs for a while.
func (r *contest) startVM(ctx context.Context, claim string) {
	d := r.ours()
	if !r.schedule(ctx, claim, d) {
		return
	}
	waits := !r.chance(5) // a pod with spec.nodeName does not
	if waits && !r.bound(ctx, claim) || !r.prepare(ctx, claim) {
		r.release(ctx, claim, d)
		return
	}
	r.pause(ctx, 4*time.Second)
	if r.chance(20) { // a pod that is deleted by force
		r.release(ctx, claim, d)
		r.unprepare(ctx)
		return
	}
	r.unprepare(ctx)
	r.release(ctx, claim, d)
}

// bound waits for the answer to a claim, as the scheduler does before it binds the pod.
func (r *contest) bound(ctx context.Context, claim string) bool {
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until) && r.pause(ctx, time.Second); {
		answer, err := r.answer(ctx, claim)
		switch {
		case err != nil:
		case answer == v1alpha1.ConditionTwinReserved:
			r.locked(claim+" is reserved", func() { r.reserved = claim; r.checkReserved() })
			return true
		case answer == v1alpha1.ConditionTwinInUse:
			r.locked(claim+" is sent away", func() {})
			return false
		}
	}
	return false
}

// checkReserved checks that only claims that tolerate taints have the other side of a GPU that is reserved.
func (r *contest) checkReserved() {
	for device, claim := range r.allocated {
		if r.reserved != "" && device != r.ours().Name && !r.careless[claim] {
			r.fault("%s is reserved, and %s has %s", r.reserved, claim, device)
		}
	}
}

// prepare is the plugin's gate and its binding.
func (r *contest) prepare(ctx context.Context, claim string) bool {
	if answer, err := r.answer(ctx, claim); err != nil || answer != v1alpha1.ConditionTwinReserved {
		return false
	}
	if !r.free(ctx) || !r.pause(ctx, time.Second) {
		return false
	}
	refused := false
	r.locked("the plugin binds for "+claim, func() {
		// Open handles, another claim's record, a quarantine.
		if refused = len(r.containers) > 0 || r.assigned != "" || r.quarantined; !refused {
			r.assigned, r.kernel = claim, vfio
		}
	})
	if refused {
		return false
	}
	r.pause(ctx, time.Second)
	if !r.free(ctx) {
		r.unprepare(ctx)
		return false
	}
	r.locked(claim+" has its VM", func() { r.vm = claim })
	_ = r.publishOurs(ctx) // a failure leaves an old slice, as a slow plugin does
	return true
}

// unprepare ends the VM and gives the function back, or leaves it quarantined for a while.
func (r *contest) unprepare(ctx context.Context) {
	r.locked("the VM ends", func() { r.vm = "" })
	time.Sleep(time.Duration(r.random(1000)) * time.Millisecond)
	bad := r.chance(10)
	r.locked("the function is back", func() { r.assigned, r.kernel, r.quarantined = "", host, bad })
	_ = r.publishOurs(context.WithoutCancel(ctx))
	if bad {
		r.pause(ctx, 3*time.Second)
		r.locked("the quarantine ends", func() { r.quarantined = false })
		_ = r.publishOurs(context.WithoutCancel(ctx))
	}
}

// startContainer has the scheduler allocate a device of the other driver to a claim, and the driver prepare it.
func (r *contest) startContainer(ctx context.Context, claim string) {
	d := r.twin(r.twins[r.random(len(r.twins))])
	if !r.schedule(ctx, claim, d) {
		return
	}
	defer r.release(ctx, claim, d)
	if !r.pause(ctx, 2*time.Second) || r.chance(10) { // slow, or dead
		return
	}
	started := false
	r.locked("the other driver prepares "+claim, func() {
		if started = r.kernel == host && r.vm == ""; started {
			r.containers[claim] = true
		}
	})
	if !started {
		return
	}
	r.pause(ctx, 3*time.Second)
	if r.chance(20) { // a pod that is deleted by force
		r.release(ctx, claim, d)
		r.pause(ctx, time.Second)
	}
	r.locked("the container of "+claim+" ends", func() { delete(r.containers, claim) })
}

// outage withdraws a driver's slice for a while.
func (r *contest) outage(ctx context.Context) {
	if !r.chance(30) {
		return
	}
	name, publish := r.Node+"-ours", r.publishOurs
	if r.chance(60) {
		name, publish = r.Node+"-theirs", r.publishTwins
	}
	r.locked("slice "+name+" is away", func() {})
	_ = r.withdraw(ctx, name)
	r.pause(ctx, 4*time.Second)
	_ = publish(context.WithoutCancel(ctx))
	r.locked("slice "+name+" is back", func() {})
}

func (r *contest) random(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

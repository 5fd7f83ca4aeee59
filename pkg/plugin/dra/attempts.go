package dra

import (
	"errors"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Attempts remembers the functions for which Prepare failed for a reason that only an attempt shows. These functions are tainted, so that
// the scheduler chooses others. Attempts are kept in memory only. Attempts is safe for concurrent use.
//
// There are three such reasons. Fabric Manager did not activate the function's partition, after a reset and a second try, or because
// another program has a GPU of the partition: all GPUs of the partition count at once, for the time Kept. A process has the function open,
// or one of its disks is in exclusive use: the function counts after two failures, until a claim is prepared, or until Holders find that
// the reason has ended, which no claim would notice. Another claim has the function, but the scheduler believes that it is free, and would
// allocate it to each new claim: the function counts at once, until the record of the other claim has ended, which [plan.NewAssessor]
// knows.
type Attempts struct {
	// Kept is how long a function stays tainted after the latest failure, or after Holders last found it blocked.
	Kept time.Duration
	// Changes is woken when a taint ends.
	Changes Waker
	// Holders find out what has the functions. If it is nil, a taint ends after Kept.
	Holders Holders

	mu     sync.Mutex // guards failed
	failed map[pci.Address]attempt
}

// Holders knows what keeps functions from claims.
type Holders interface {
	// Blocks reports whether a process has the function or one of its disks in use. It is asked after the time Kept.
	Blocks(a pci.Address) bool
	// LookForLost is called when a claim was refused because another claim has the function. That claim may have lost it. LookForLost must
	// not block.
	LookForLost()
}

// AttemptsKept is the time after which the plugin checks again whether claims may get the function.
const AttemptsKept = 10 * time.Minute

// attempt is the result of the latest attempts with a function.
type attempt struct {
	code   rule.Code
	times  int
	latest time.Time
	// end is the timer that checks whether the taint can end. A claim is retried for as long as its pod waits, and each retry restarts the
	// timer.
	end *time.Timer
}

// isTaint reports whether the function is to be tainted.
func (a attempt) isTaint() bool { return a.times >= tainting }

// tainting is the number of failures in a row after which a function is tainted. The first failure may be due to a process that is just
// ending.
const tainting = 2

// Failed records an error of Prepare.
func (t *Attempts) Failed(err error) {
	f := onlySeenByPrepare(err)
	for _, a := range f.addrs {
		t.note(a, f)
	}
	if f.code == rule.HeldByLostClaim && t.Holders != nil {
		t.Holders.LookForLost()
	}
}

func (t *Attempts) note(a pci.Address, f failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = map[pci.Address]attempt{}
	}
	was := t.failed[a]
	if was.code != f.code || time.Since(was.latest) > t.Kept {
		was.times = 0
	}
	if f.again {
		was.times = tainting
	}
	t.failed[a] = attempt{code: f.code, times: was.times + 1, latest: time.Now(), end: t.putOff(a, was.end)}
}

// putOff restarts the timer that calls expire for a function.
func (t *Attempts) putOff(a pci.Address, end *time.Timer) *time.Timer {
	const after = time.Second
	if end == nil {
		return time.AfterFunc(t.Kept+after, func() { t.expire(a) })
	}
	end.Reset(t.Kept + after)
	return end
}

// expire forgets a function whose time has passed, unless the function is still blocked.
func (t *Attempts) expire(a pci.Address) {
	was, ok := t.attempt(a)
	// A timer that has fired can't be stopped, so there may have been another attempt since.
	if !ok || was.code == rule.HeldByLostClaim || time.Since(was.latest) <= t.Kept {
		return
	}
	// Holders look at processes, so they are called without the lock. replace then checks that the attempt has not changed.
	if was.isTaint() && t.Holders != nil && t.Holders.Blocks(a) {
		t.replace(a, was, attempt{was.code, was.times, time.Now(), t.putOff(a, was.end)})
		return
	}
	t.replace(a, was, attempt{})
	t.Changes.Wake()
}

func (t *Attempts) attempt(a pci.Address) (attempt, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, ok := t.failed[a]
	return was, ok
}

// replace replaces the attempt was by now, or deletes it if now is zero. It does nothing if the attempt has changed.
func (t *Attempts) replace(a pci.Address, was, now attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.failed[a] != was:
	case now == attempt{}:
		delete(t.failed, a)
	default:
		t.failed[a] = now
	}
}

// Succeeded records that a claim for the functions is prepared.
func (t *Attempts) Succeeded(addrs []pci.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range addrs {
		if was, ok := t.failed[a]; ok {
			was.end.Stop()
		}
		delete(t.failed, a)
	}
}

// Failing returns why functions must be tainted.
func (t *Attempts) Failing() map[pci.Address]rule.Code {
	t.mu.Lock()
	defer t.mu.Unlock()
	standing := map[pci.Address]rule.Code{}
	for a, was := range t.failed {
		if was.isTaint() {
			standing[a] = was.code
		}
	}
	return standing
}

// failure holds the functions with which an attempt failed; none if the judgment on devices sees the reason too.
type failure struct {
	addrs []pci.Address
	code  rule.Code
	// again is set if the next claim of the functions would fail for the same reason in any case. The functions are then tainted at once.
	again bool
}

// onlySeenByPrepare returns the functions of an error whose reason the judgment on devices can't see. A missing CNI plugin of an address
// pool is not such a reason: a class names the pool, and claims of other classes can still use the VF.
func onlySeenByPrepare(err error) failure {
	if held, ok := errors.AsType[*effects.InUseError](err); ok {
		return failure{addrs: []pci.Address{held.Address}, code: rule.InUse}
	}
	if failed, ok := errors.AsType[*bind.NotActivatedError](err); ok {
		return failure{activated(failed.Device), failed.Code(), true}
	}
	refused, ok := errors.AsType[*rule.RefusedError](err)
	if !ok {
		return failure{}
	}
	for i := range refused.Verdicts {
		switch r := &refused.Verdicts[i]; {
		case r.Code == rule.DiskInUse:
			return failure{addrs: []pci.Address{r.Address}, code: r.Code}
		case r.Code == rule.PartitionNotActivated:
			return failure{activated(r.Device), r.Code, true}
		case r.Code == rule.Held && r.Culprit != nil:
			return failure{[]pci.Address{*r.Culprit}, rule.HeldByLostClaim, true}
		case r.Code == rule.Held:
			return failure{[]pci.Address{r.Address}, rule.HeldByLostClaim, true}
		}
	}
	return failure{}
}

// activated returns those functions of the named device that an activation can be for: all but the NICs that are published together with a
// GPU.
func activated(name string) (addrs []pci.Address) {
	parts, err := device.ParseParts(name)
	if err != nil {
		return nil // no device has such a name
	}
	for _, p := range parts {
		if p.Type != device.VFType && p.Type != device.PFType {
			addrs = append(addrs, p.Address)
		}
	}
	return addrs
}

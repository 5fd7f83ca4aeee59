package dra

import (
	"errors"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Attempts remembers the functions for which Prepare failed by reasons that only an attempt
// shows: a process has the function open, or a disk of it is in exclusive use. A function
// that failed so twice is tainted, so that the scheduler chooses another. A claim that is
// prepared clears it, and so does time: the reason may be gone, and no claim would find out.
// It is in memory: after a restart of the plugin the next two attempts count. It is safe
// for concurrent use.
type Attempts struct {
	// Kept is how long after the latest failure a function is tainted.
	Kept time.Duration
	// Changed is told when a taint is to come or go.
	Changed func()

	mu     sync.Mutex // guards failed
	failed map[pci.Address]attempt
}

// AttemptsKept is the time after which a claim may try again.
const AttemptsKept = 10 * time.Minute

// attempt is what the latest attempts with a function came to.
type attempt struct {
	code   plan.Code
	times  int
	latest time.Time
}

// tainting is how many times in a row make a taint: a first failure may have been a process
// that was about to end.
const tainting = 2

// Failed notes an error of Prepare.
func (t *Attempts) Failed(err error) {
	a, code, ok := onlySeenByPrepare(err)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = map[pci.Address]attempt{}
	}
	was := t.failed[a]
	if was.code != code || time.Since(was.latest) > t.Kept {
		was.times = 0
	}
	t.failed[a] = attempt{code: code, times: was.times + 1, latest: time.Now()}
	time.AfterFunc(t.Kept+time.Second, t.Changed)
}

// Succeeded notes that a claim for the functions is prepared.
func (t *Attempts) Succeeded(addrs []pci.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range addrs {
		delete(t.failed, a)
	}
}

// Failing returns why functions are to be tainted now, and drops what is over.
func (t *Attempts) Failing() map[pci.Address]plan.Code {
	t.mu.Lock()
	defer t.mu.Unlock()
	standing := map[pci.Address]plan.Code{}
	for a, was := range t.failed {
		switch {
		case time.Since(was.latest) > t.Kept:
			delete(t.failed, a)
		case was.times >= tainting:
			standing[a] = was.code
		}
	}
	return standing
}

// onlySeenByPrepare returns the function that an error is about where it is a reason of the
// device's that the plan doesn't see. A pool of addresses whose CNI plugin is missing is
// none: a class names the pool, and claims of other classes are prepared on the same VF.
func onlySeenByPrepare(err error) (pci.Address, plan.Code, bool) {
	if held, ok := errors.AsType[*effects.InUseError](err); ok {
		return held.Address, plan.InUse, true
	}
	if refused, ok := errors.AsType[*plan.RefusedError](err); ok {
		for i := range refused.Refusals {
			if r := &refused.Refusals[i]; r.Code == plan.DiskInUse {
				return r.Address, r.Code, true
			}
		}
	}
	return pci.Address{}, "", false
}

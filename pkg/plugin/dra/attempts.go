package dra

import (
	"errors"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// Attempts remembers the functions for which Prepare failed for a reason that only an attempt shows: a process has the
// function open, or one of its disks is in exclusive use. After two failures the function is tainted, so that the
// scheduler chooses another. The taint ends when a claim is prepared, or after some time, because no claim would notice
// that the reason ended. Attempts are kept in memory only. It is safe for concurrent use.
type Attempts struct {
	// Kept is how long a function stays tainted after the latest failure.
	Kept time.Duration
	// Changed is called when a taint ends.
	Changed func()

	mu     sync.Mutex // guards failed
	failed map[pci.Address]attempt
}

// AttemptsKept is the time after which another claim may get the function.
const AttemptsKept = 10 * time.Minute

// attempt is the result of the latest attempts with a function.
type attempt struct {
	code   plan.Code
	times  int
	latest time.Time
	// end says that the taint has ended. A claim is retried for as long as its pod waits: each retry puts it off.
	end *time.Timer
}

// tainting is the number of failures in a row after which a function is tainted. The first failure can be due to a process that is
// ending.
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
	t.failed[a] = attempt{code: code, times: was.times + 1, latest: time.Now(), end: t.putOff(was.end)}
}

// putOff has Changed called once the function is no longer tainted.
func (t *Attempts) putOff(end *time.Timer) *time.Timer {
	const after = time.Second
	if end == nil {
		return time.AfterFunc(t.Kept+after, t.Changed)
	}
	end.Reset(t.Kept + after)
	return end
}

// Succeeded notes that a claim for the functions is prepared.
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

// Failing returns why functions must be tainted, and forgets old failures.
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

// onlySeenByPrepare returns the function of an error whose reason the plan can't see. A missing CNI plugin of an address pool is not such
// a reason: a class names the pool, and claims of other classes can use the same VF.
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

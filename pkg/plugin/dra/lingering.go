package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// lingerTime is how long a withdrawn device stays published. The node learns of an allocation only from the kubelet's call for the
// claim. Until then the scheduler must find the device in its slice, or it gives the device's shared counters to another claim
// (Kubernetes issue 140802). The scheduler binds a pod within ten minutes of the allocation (its bindingTimeout), and the kubelet calls
// immediately.
const lingerTime = 15 * time.Minute

// listLimit bounds the requests for the node's slices, and for claims' allocations.
const listLimit = 10 * time.Second

// offered remembers when each device was last assignable, and what it consumed when it was last published.
type offered struct {
	last     map[publish.Allocated]time.Time
	consumed Consumed
}

// Consumed is what published devices consume of shared counters.
type Consumed = map[publish.Allocated][]resourceapi.DeviceCounterConsumption

// seed adds what an earlier instance published.
func (o *offered) seed(devices Consumed) {
	o.last, o.consumed = map[publish.Allocated]time.Time{}, devices
	for d := range devices {
		o.last[d] = time.Now()
	}
}

// lingering returns the devices that were assignable within lingerTime, in order. After that time it keeps a device that is allocated
// for another period, and forgets the others.
func (o *offered) lingering(isAllocated func(publish.Allocated) bool) []publish.Allocated {
	var all []publish.Allocated
	for d, at := range o.last {
		if time.Since(at) >= lingerTime {
			if !isAllocated(d) {
				delete(o.last, d)
				continue
			}
			o.last[d] = time.Now()
		}
		all = append(all, d)
	}
	slices.SortFunc(all, publish.Allocated.Compare)
	return all
}

// note records the devices that are published now.
func (o *offered) note(pools map[string]publish.Pool) {
	o.consumed = Consumed{}
	for _, d := range devices(pools) {
		o.consumed[publish.Allocated{Pool: d.pool, Name: d.Name}] = d.ConsumesCounters
		withdrawn := slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == publish.TaintWithdrawn })
		if !withdrawn {
			o.last[publish.Allocated{Pool: d.pool, Name: d.Name}] = time.Now()
		}
	}
}

// lingering returns the devices that were assignable and may be allocated. While records can't be read, any device may be.
func (p *Publisher) lingering(ctx context.Context, unread bool) []publish.Allocated {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	return p.offered.lingering(func(d publish.Allocated) bool {
		return unread || p.Asked != nil && p.Asked.Allocated(ctx, d)
	})
}

// PublishedDevices reads the devices in the node's slices from the API server, with what they consume.
func PublishedDevices(ctx context.Context, client kubernetes.Interface, node string) (Consumed, error) {
	ours := fields.Set{
		resourceapi.ResourceSliceSelectorDriver: v1alpha1.DriverName, resourceapi.ResourceSliceSelectorNodeName: node,
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: ours.String()})
	if err != nil {
		return nil, fmt.Errorf("read the node's ResourceSlices: %w", err)
	}
	all := Consumed{}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		for j := range spec.Devices {
			d := &spec.Devices[j]
			all[publish.Allocated{Pool: spec.Pool.Name, Name: d.Name}] = d.ConsumesCounters
		}
	}
	return all, nil
}

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

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

// lingerTime is how long a device stays published, withdrawn, after it was on offer
// last. The node hears of an allocation only when the kubelet asks for the claim; until
// then the scheduler must find the device in its slice, or it gives its shared counters
// to somebody else (Kubernetes issue 140802). The scheduler binds a pod within ten minutes
// of the allocation (its bindingTimeout), and the kubelet asks at once.
const lingerTime = 15 * time.Minute

// listLimit is how long the API server may take to list the node's slices, or to say which
// claims have their allocation.
const listLimit = 10 * time.Second

// offered remembers when each device was on offer last, and what it consumed when it was
// published last.
type offered struct {
	last     map[publish.Allocated]time.Time
	consumed Consumed
}

// Consumed is what published devices consume of shared counters.
type Consumed = map[publish.Allocated][]resourceapi.DeviceCounterConsumption

// seed enters what an earlier instance has published.
func (o *offered) seed(devices Consumed) {
	o.last, o.consumed = map[publish.Allocated]time.Time{}, devices
	for d := range devices {
		o.last[d] = time.Now()
	}
}

// lingering returns the devices that were on offer a short while ago, in order. Of those
// that were so longer ago the allocated ones begin their time again, and the others are
// forgotten.
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

// note enters what is published now.
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

// lingering returns the devices that were on offer and may be allocated. While records can't
// be read, each of them may be of any.
func (p *Publisher) lingering(ctx context.Context, unread bool) []publish.Allocated {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	return p.offered.lingering(func(d publish.Allocated) bool {
		return unread || p.Asked != nil && p.Asked.Allocated(ctx, d)
	})
}

// PublishedDevices returns the devices of our slices of the node at the API server, and what
// they consume.
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

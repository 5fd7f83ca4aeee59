package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
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

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
// last. The node hears of an allocation only when the kubelet prepares the claim; until
// then the scheduler must find the device in its slice, or it gives its shared counters
// to somebody else (Kubernetes issue 140802).
const lingerTime = 8 * time.Minute

// listLimit is how long the API server may take to list the node's slices.
const listLimit = 10 * time.Second

// offered remembers when each device was on offer last.
type offered struct {
	last map[publish.Allocated]time.Time
}

// seed enters what an earlier instance has published.
func (o *offered) seed(devices []publish.Allocated) {
	o.last = map[publish.Allocated]time.Time{}
	for _, d := range devices {
		o.last[d] = time.Now()
	}
}

// lingering returns the devices that were on offer a short while ago, in order. Those
// that were so longer ago are forgotten, unless records can't be read: one of them may
// hold the device.
func (o *offered) lingering(keep bool) []publish.Allocated {
	var all []publish.Allocated
	for d, at := range o.last {
		if !keep && time.Since(at) >= lingerTime {
			delete(o.last, d)
			continue
		}
		all = append(all, d)
	}
	slices.SortFunc(all, publish.Allocated.Compare)
	return all
}

// note enters what is on offer now.
func (o *offered) note(pools map[string]publish.Pool) {
	for _, d := range devices(pools) {
		withdrawn := slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == publish.TaintWithdrawn })
		if !withdrawn {
			o.last[publish.Allocated{Pool: d.pool, Name: d.Name}] = time.Now()
		}
	}
}

// PublishedDevices returns the devices of our slices of the node at the API server.
func PublishedDevices(ctx context.Context, client kubernetes.Interface, node string) ([]publish.Allocated, error) {
	ours := fields.Set{
		resourceapi.ResourceSliceSelectorDriver: v1alpha1.DriverName, resourceapi.ResourceSliceSelectorNodeName: node,
	}
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: ours.String()})
	if err != nil {
		return nil, fmt.Errorf("read the node's ResourceSlices: %w", err)
	}
	var all []publish.Allocated
	for i := range list.Items {
		spec := &list.Items[i].Spec
		for j := range spec.Devices {
			all = append(all, publish.Allocated{Pool: spec.Pool.Name, Name: spec.Devices[j].Name})
		}
	}
	return all, nil
}

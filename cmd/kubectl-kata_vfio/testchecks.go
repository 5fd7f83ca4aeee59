package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// sees compares what the VM sees with the slice of the device that the claim got.
func (r *testRun) sees(ctx context.Context, pod string) error {
	var claim resourceapi.ResourceClaim
	if err := r.client.Get(ctx, r.objects.namespace, r.objects.base, &claim); err != nil {
		return r.unlessOver(ctx, "read the claim", err)
	}
	if claim.Status.Allocation == nil || len(claim.Status.Allocation.Devices.Results) != 1 {
		r.result.add(seesDevice, failed, "the claim is not allocated to one device")
		return nil
	}
	got := claim.Status.Allocation.Devices.Results[0]
	r.result.Device = got.Device
	if got.Driver != v1alpha1.DriverName {
		r.result.add(seesDevice, failed, "the claim got a device of driver "+got.Driver)
		return nil
	}
	ids, known := r.ids[cluster.ID{Driver: got.Driver, Pool: got.Pool, Name: got.Device}]
	if !known {
		r.result.add(seesDevice, unknown, "the node publishes no PCI IDs of "+got.Device)
		return nil
	}
	seen, err := r.functions(ctx, pod)
	if err != nil {
		return r.unlessOver(ctx, "read the log of pod "+pod, err)
	}
	result, text := seen.compare(ids)
	r.result.add(seesDevice, result, text)
	return nil
}

// vmFunctions is what kata-vfio-guestnet devices prints.
type vmFunctions struct {
	Functions []struct {
		Vendor string `json:"vendor"`
		Device string `json:"device"`
	} `json:"functions"`
}

// compare compares with the vendor and device ID of the one device.
func (v *vmFunctions) compare(ids [2]string) (result, text string) {
	n := 0
	for _, f := range v.Functions {
		if f.Vendor == ids[0] && f.Device == ids[1] {
			n++
		}
	}
	if n != 1 {
		return failed, fmt.Sprintf("%s of %s:%s in the VM, want 1; it sees %s", output.Count(n, "function"), ids[0], ids[1], output.Count(len(v.Functions), "PCI function"))
	}
	return passed, fmt.Sprintf("%s:%s, once", ids[0], ids[1])
}

// maxSeen is how much of a log is read.
const maxSeen = 1 << 20

// functions reads what the pod's VM sees from its log, whose first line may not be there yet.
func (r *testRun) functions(ctx context.Context, pod string) (*vmFunctions, error) {
	for {
		text, err := r.log(ctx, pod)
		if err != nil {
			return nil, err
		}
		if line, _, whole := bytes.Cut(text, []byte("\n")); whole {
			var seen vmFunctions
			if err := json.Unmarshal(line, &seen); err != nil {
				return nil, fmt.Errorf("it is not what kata-vfio-guestnet writes: %w", err)
			}
			return &seen, nil
		}
		if !r.rest(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

func (r *testRun) log(ctx context.Context, pod string) ([]byte, error) {
	log, err := r.client.Logs(ctx, r.objects.namespace, pod, &corev1.PodLogOptions{Container: "test"})
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(log, maxSeen))
}

// unlessOver returns the error, or notes that the time is over.
func (r *testRun) unlessOver(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		r.result.add(seesDevice, failed, fmt.Sprintf("%s: not within %s", what, r.objects.test.limit))
		return nil
	}
	if apierrors.IsForbidden(err) {
		return &rightsError{err}
	}
	r.result.add(seesDevice, failed, fmt.Sprintf("%s: %v", what, err))
	return nil
}

// refuses makes a pod that must not run. Either the API server refuses it, or kata-vfio with an Event.
func (r *testRun) refuses(ctx context.Context, check string, pod *corev1.Pod) error {
	if ctx.Err() != nil {
		r.result.add(check, failed, "the time is over")
		return nil
	}
	r.pods = append(r.pods, pod.Name) // before: the answer may be lost, and the pod there
	text, err := r.create(ctx, pod)
	if text != "" {
		r.result.add(check, r.byPolicy(text), text)
	}
	if text != "" || err != nil {
		return err
	}
	for {
		var p corev1.Pod
		if err := r.client.Get(ctx, r.objects.namespace, pod.Name, &p); err != nil && ctx.Err() == nil {
			return fmt.Errorf("read pod %s: %w", pod.Name, err)
		}
		if hasRun(&p) {
			r.result.add(check, failed, "pod "+pod.Name+" has run: it was not refused")
			return nil
		}
		if e := r.refusal(ctx, pod.Name); e != nil {
			r.result.add(check, passed, e.Reason+": "+e.Message)
			return nil
		}
		r.say("waits for the refusal of pod %s", pod.Name)
		if !r.rest(ctx) {
			r.result.add(check, failed, "no refusal was seen: "+r.lastEvent(ctx, pod.Name))
			return nil
		}
	}
}

// byPolicy returns the result of a check whose pod the API server refused. The check has passed if a policy of the chart
// refused the pod: the message of such a policy has a code. If a quota or Pod Security refused the pod, it is unknown what
// kata-vfio would have done.
func (r *testRun) byPolicy(text string) string {
	for word := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '(' || c == ')' }) {
		if _, ours := rule.Find(r.texts, word); ours {
			return passed
		}
	}
	return unknown
}

// refusal returns the Event with which kata-vfio refuses a pod: its reason is a code that explain knows.
func (r *testRun) refusal(ctx context.Context, pod string) *corev1.Event {
	for _, e := range r.events(ctx, pod) {
		if _, ours := rule.Find(r.texts, e.Reason); ours && e.Type == corev1.EventTypeWarning {
			return &e
		}
	}
	return nil
}

func (r *testRun) events(ctx context.Context, pod string) []corev1.Event {
	var list corev1.EventList
	o := metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod}
	if err := r.client.List(ctx, r.objects.namespace, &list, o); err != nil {
		r.say("the Events of pod %s can't be read: %v", pod, err)
	}
	var of []corev1.Event
	for i := range list.Items {
		if e := &list.Items[i]; e.InvolvedObject.Name == pod {
			of = append(of, *e)
		}
	}
	return of
}

// lastEvent says what a pod waits for, after its time is over.
func (r *testRun) lastEvent(ctx context.Context, pod string) string {
	// The context of the test may have ended, but the pod's last event is still to be read.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	events := r.events(ctx, pod)
	if len(events) == 0 {
		return "there is no Event of pod " + pod
	}
	last := slices.MaxFunc(events, func(a, b corev1.Event) int { return fleet.EventTime(&a).Compare(fleet.EventTime(&b)) })
	return last.Reason + ": " + last.Message
}

// keeps checks that the refusals did not take the device from its pod.
func (r *testRun) keeps(ctx context.Context, pod string) error {
	var p corev1.Pod
	switch err := r.client.Get(ctx, r.objects.namespace, pod, &p); {
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("read pod %s: %w", pod, err)
	case isUp(&p):
		r.result.add(keepsDevice, passed, "its pod still runs")
	default:
		r.result.add(keepsDevice, failed, "its pod is "+string(p.Status.Phase))
	}
	return nil
}

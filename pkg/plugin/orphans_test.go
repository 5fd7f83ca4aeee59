package plugin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestOrphanClaims: one whose ResourceClaim is certainly gone, for long enough, and
// that no sandbox holds, is taken back. All else stays.
func TestOrphanClaims(t *testing.T) {
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	other := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	other.UID = "uid-2"
	sandbox := func(pid int) func(*journal.Record) {
		return func(rec *journal.Record) { rec.Sandbox = &journal.Sandbox{ID: "s1", VMM: journal.Process{PID: pid}} }
	}
	tests := map[string]struct {
		objects  []runtime.Object
		fail     error
		change   func(*journal.Record)
		after    time.Duration
		released bool
		left     float64
	}{
		"gone":                        {objects: []runtime.Object{worker}, after: time.Hour, released: true},
		"gone since a moment":         {objects: []runtime.Object{worker}, after: time.Minute},
		"replaced by one of its name": {objects: []runtime.Object{worker, other}, after: time.Hour, released: true},
		"there":                       {objects: []runtime.Object{worker, plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")}, after: time.Hour},
		"the API does not answer":     {objects: []runtime.Object{worker}, fail: errors.New("no route to host"), after: time.Hour},
		"the API is not served": {objects: []runtime.Object{worker}, after: time.Hour, fail: apierrors.NewGenericServerResponse(
			http.StatusNotFound, "get", resourceapi.Resource("resourceclaims"), "claim-uid-1", "404 page not found", 0, true)},
		"its allocation withdrawn":            {objects: []runtime.Object{worker, reallocated()}, after: time.Hour, released: true},
		"its allocation withdrawn just now":   {objects: []runtime.Object{worker, reallocated()}, after: time.Minute},
		"its allocation withdrawn under a VM": {objects: []runtime.Object{worker, reallocated()}, after: time.Hour, left: 1, change: sandbox(4711)},
		"allocated another device":            {objects: []runtime.Object{worker, reallocated("gpu-0000-3c-00-0 worker-1")}, after: time.Hour, released: true},
		"allocated one more":                  {objects: []runtime.Object{worker, reallocated("gpu-0000-3b-00-0 worker-1", "gpu-0000-3c-00-0 worker-1")}, after: time.Hour, released: true},
		"allocated on another node":           {objects: []runtime.Object{worker, reallocated("gpu-0000-3b-00-0 worker-2")}, after: time.Hour, released: true},
		"prepared from another node's pool": {
			objects: []runtime.Object{worker, reallocated("gpu-0000-3b-00-0 worker-2")}, after: time.Hour, released: true,
			change: func(rec *journal.Record) {
				rec.Plan.Devices = slices.Clone(rec.Plan.Devices)
				rec.Plan.Devices[0].Pool = "worker-2"
			},
		},
		"allocated what can't be read": {objects: []runtime.Object{worker, reallocated("gpu-0 worker-1")}, after: time.Hour},
		"another cluster":              {after: time.Hour},
		"prepared by hand":             {objects: []runtime.Object{worker}, after: time.Hour, left: 1, change: func(rec *journal.Record) { rec.Plan.Claim.Pods = nil }},
		"a VM has it":                  {objects: []runtime.Object{worker}, after: time.Hour, left: 1, change: sandbox(4711)},
		"perhaps a VM has it":          {objects: []runtime.Object{worker}, after: time.Hour, left: 1, change: sandbox(0)},
		"its VM has ended":             {objects: []runtime.Object{worker}, after: time.Hour, released: true, change: sandbox(4712)},
		"quarantined":                  {objects: []runtime.Object{worker}, after: time.Hour, change: func(rec *journal.Record) { rec.State = journal.Quarantined }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			n.Kernel.AddGPU(0x3b)
			n.Prepare("uid-1", "gpu-0000-3b-00-0")
			if rec, err := n.Records.Load("uid-1"); err != nil {
				t.Fatal(err)
			} else if tt.change != nil {
				own := *rec
				tt.change(&own)
				if err := n.Records.Save(&own); err != nil {
					t.Fatal(err)
				}
			}
			client := fake.NewClientset(tt.objects...)
			if tt.fail != nil {
				client.PrependReactor("get", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, tt.fail })
			}
			now, released, events := time.Now(), "", &plugintest.EventLog{}
			repair := plugin.Repair{
				Client: client, Node: "worker-1", Records: n.Records, Orphans: n.Claims,
				Claims: unprepares(func(_ context.Context, ref plan.Ref, _ func(context.Context, *journal.Record) error) error {
					released = ref.UID
					return nil
				}),
				Processes: onlyRuns(4711),
				Reporter:  dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: events, Log: plugintest.Quiet()}), Metrics: n.Metrics, Log: plugintest.Quiet(), Now: func() time.Time { return now },
			}
			repair.Look(t.Context())
			if released != "" {
				t.Error("taken back at the first look")
			}
			now = now.Add(tt.after)
			repair.Look(t.Context())
			if (released == "uid-1") != tt.released {
				t.Errorf("released %q, want %t", released, tt.released)
			}
			repair.Look(t.Context()) // tells of nothing twice
			found, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_orphans")
			if found["claim"] != tt.left || events.Count("left alone") != int(tt.left) {
				t.Errorf("%v left, %d events; want %v", found, events.Count(""), tt.left)
			}
		})
	}
}

// never is an API server that accepts requests and does not answer.
type never struct{}

func (never) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestRepairEndsInTime: one goroutine repairs all of the node.
func TestRepairEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := plugintest.New(t)
		n.Kernel.AddGPU(0x3b)
		n.Prepare("uid-1", "gpu-0000-3b-00-0")
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://api.example.com", Transport: never{}})
		if err != nil {
			t.Fatal(err)
		}
		reporter := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()})
		go func() { _ = reporter.Run(t.Context()) }() // it has no error to return
		repair := plugin.Repair{
			Client: client, Node: "worker-1", Records: n.Records, Orphans: n.Claims, Processes: onlyRuns(4711), Reporter: reporter,
			Metrics: n.Metrics, Log: plugintest.Quiet(), Now: time.Now,
		}
		// Longer than any request may take, so that a request without a limit fails the test instead of hanging it.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if repair.Look(ctx); time.Since(start) != dra.RequestLimit {
			t.Errorf("a look ends after %s, want %s", time.Since(start), dra.RequestLimit)
		}
	})
}

// unprepares unprepares claims.
type unprepares func(ctx context.Context, ref plan.Ref, check func(context.Context, *journal.Record) error) error

func (u unprepares) Release(ctx context.Context, ref plan.Ref, check func(context.Context, *journal.Record) error) error {
	return u(ctx, ref, check)
}

// lossesByUID has the latest loss of each claim.
type lossesByUID map[string]string

func (l lossesByUID) Note(uid, why string) {
	if l[uid] = why; why == "" {
		delete(l, uid)
	}
}

// reallocated is the claim that has the first GPU here, with another allocation now, of devices
// with their pools: of nothing without one.
func reallocated(devices ...string) *resourceapi.ResourceClaim {
	c := plugintest.Allocated("uid-1")
	for _, d := range devices {
		name, pool, _ := strings.Cut(d, " ")
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: "kata-vfio.dev", Pool: pool, Device: name})
	}
	if len(devices) == 0 {
		c.Status.Allocation = nil
	}
	return c
}

// TestWithdrawnAllocation: from the first look on no sandbox gets the device, and after the
// grace it goes back by the usual path. One that is allocated again until then stays.
func TestWithdrawnAllocation(t *testing.T) {
	for name, again := range map[string]bool{"for good": false, "until it is taken back": true} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			gpu := n.Kernel.AddGPU(0x3b)
			n.Prepare("uid-1", "gpu-0000-3b-00-0")
			client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}, reallocated())
			now, events, withdrawn := time.Now(), &plugintest.EventLog{}, lossesByUID{}
			repair := plugin.Repair{
				Client: client, Node: "worker-1", Records: n.Records, Orphans: n.Claims, Metrics: n.Metrics, Log: plugintest.Quiet(),
				Reporter: dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: events, Log: plugintest.Quiet()}), Now: func() time.Time { return now },
				Losses: withdrawn,
				Claims: unprepares(func(ctx context.Context, ref plan.Ref, check func(context.Context, *journal.Record) error) error {
					if again {
						if err := client.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"), "team-a"); err != nil {
							t.Fatal(err)
						}
					}
					_, err := n.Claims.UnprepareIf(ctx, ref.UID, check)
					return err
				}),
			}
			repair.Look(t.Context())
			if withdrawn["uid-1"] != "its allocation was withdrawn" || n.Driver(gpu) != "vfio-pci" {
				t.Errorf("withdrawn %v, driver %s", withdrawn, n.Driver(gpu))
			}
			now = now.Add(11 * time.Minute)
			repair.Look(t.Context())
			repair.Look(t.Context())
			want := map[bool]string{false: "nvidia", true: "vfio-pci"}[again]
			if driver := n.Driver(gpu); driver != want || withdrawn["uid-1"] != "" || events.Count("") != 0 {
				t.Errorf("driver %s, withdrawn %v, %d events; want %s and no event", driver, withdrawn, events.Count(""), want)
			}
		})
	}
}

// TestConfirm: the API server's word counts, and its silence doesn't.
func TestConfirm(t *testing.T) {
	for name, tt := range map[string]struct {
		claim *resourceapi.ResourceClaim
		fail  error
		words string // of the error; empty if there is none
	}{
		"as it was prepared":  {claim: plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")},
		"withdrawn":           {claim: reallocated(), words: "its allocation was withdrawn"},
		"another device":      {claim: reallocated("gpu-0000-3c-00-0 worker-1"), words: "it is allocated gpu-0000-3c-00-0 of pool worker-1 now"},
		"another node":        {claim: reallocated("gpu-0000-3b-00-0 worker-2"), words: "it is allocated gpu-0000-3b-00-0 of pool worker-2 now"},
		"gone":                {words: "its ResourceClaim no longer exists"},
		"without any answer":  {fail: errors.New("no route to host")},
		"of unreadable names": {claim: reallocated("gpu-0 worker-1")},
	} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			n.Kernel.AddGPU(0x3b)
			n.Prepare("uid-1", "gpu-0000-3b-00-0")
			client := fake.NewClientset()
			if tt.claim != nil {
				client = fake.NewClientset(tt.claim)
			}
			if tt.fail != nil {
				client.PrependReactor("get", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, tt.fail })
			}
			err := (&dra.Allocations{Client: client, Node: "worker-1", Journal: n.Records}).Confirm(t.Context(), "uid-1")
			if (err != nil) != (tt.words != "") || err != nil && !strings.Contains(err.Error(), tt.words) {
				t.Errorf("Confirm = %v, want %q", err, tt.words)
			}
		})
	}
}

// TestGapInItsAbsenceBeginsItAnew: a claim that is there in between is none.
func TestGapInItsAbsenceBeginsItAnew(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	there := true
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}, plugintest.Allocated("uid-1", "gpu-0000-3b-00-0"))
	client.PrependReactor("get", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		return !there, &resourceapi.ResourceClaim{}, nil // of another UID
	})
	now, released := time.Now(), 0
	repair := plugin.Repair{
		Client: client, Node: "worker-1", Records: n.Records, Orphans: n.Claims, Metrics: n.Metrics, Log: plugintest.Quiet(),
		Claims: unprepares(func(context.Context, plan.Ref, func(context.Context, *journal.Record) error) error {
			released++
			return nil
		}),
		Reporter: dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()}), Now: func() time.Time { return now },
	}
	for _, there = range []bool{false, true, false} {
		repair.Look(t.Context())
		now = now.Add(9 * time.Minute)
	}
	repair.Look(t.Context())
	if released != 0 {
		t.Errorf("taken back %d times, want it left: it was there %v ago", released, 18*time.Minute)
	}
	now = now.Add(2 * time.Minute)
	repair.Look(t.Context())
	if released != 1 {
		t.Errorf("taken back %d times, want once", released)
	}
}

// TestOutageChangesNothing: while the API server does not answer, neither for the node
// nor for a claim, what was found stands, and is not told again afterwards.
func TestOutageChangesNothing(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	rec, err := n.Records.Load("uid-1")
	if err != nil {
		t.Fatal(err)
	}
	own := *rec
	own.Sandbox = &journal.Sandbox{ID: "s1", VMM: journal.Process{PID: 4711}}
	if err := n.Records.Save(&own); err != nil {
		t.Fatal(err)
	}
	client, events, now, down := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}), &plugintest.EventLog{}, time.Now(), ""
	client.PrependReactor("get", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		return a.GetResource().Resource == down, nil, errors.New("no route to host")
	})
	repair := plugin.Repair{
		Client: client, Node: "worker-1", Records: n.Records, Orphans: n.Claims, Metrics: n.Metrics, Log: plugintest.Quiet(),
		Processes: allRun{}, Reporter: dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: events, Log: plugintest.Quiet()}), Now: func() time.Time { return now },
	}
	repair.Look(t.Context())
	now = now.Add(time.Hour)
	for _, down = range []string{"", "nodes", "", "resourceclaims", ""} {
		repair.Look(t.Context())
		if found, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_orphans"); found["claim"] != 1 || events.Count("left alone") != 1 {
			t.Errorf("%q down: %v left, %d events; want one of each", down, found, events.Count("left alone"))
		}
	}
}

// orphanList are found by nobody but the test.
type orphanList []maintain.Orphan

func (orphanList) SweepSpecs(context.Context) ([]string, error)                 { return nil, nil }
func (s orphanList) GiveBackOrphans(context.Context) ([]maintain.Orphan, error) { return s, nil }

// TestOrphansThatCannotBeRepairedAreCounted checks the count after each look.
func TestOrphansThatCannotBeRepairedAreCounted(t *testing.T) {
	n := plugintest.New(t)
	client, events := fake.NewClientset(), &plugintest.EventLog{}
	repair := plugin.Repair{
		Client: client, Node: "worker-1", Records: n.Records, Metrics: n.Metrics, Log: plugintest.Quiet(),
		Orphans:  orphanList{{Address: pci.Address{Bus: 0x3b}, Err: errors.New("input/output error")}, {Address: pci.Address{Bus: 0x3c}, GivenBack: "nvidia"}},
		Reporter: dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: events, Log: plugintest.Quiet()}), Now: time.Now,
	}
	for look := range 2 {
		repair.Look(t.Context())
		if found, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_orphans"); found["binding"] != 1 {
			t.Errorf("look %d: %v left, want the one", look, found)
		}
	}
	events.Want(t, "Node /worker-1 Warning Orphan Repair: binding 0000:3b:00.0 is left alone: it can't be given back now: input/output error")
}

// TestClaimThatEndsInQuarantineIsNotSaidToBeTakenBack.
func TestClaimThatEndsInQuarantineIsNotSaidToBeTakenBack(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	now, log := time.Now(), &bytes.Buffer{}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}})
	repair := plugin.Repair{
		Client: client, Node: "worker-1", Records: n.Records, Orphans: n.Claims, Metrics: n.Metrics, Log: slog.New(slog.NewTextHandler(log, nil)),
		Claims: unprepares(func(context.Context, plan.Ref, func(context.Context, *journal.Record) error) error {
			rec, err := n.Records.Load("uid-1")
			if err != nil {
				return err
			}
			own := *rec
			own.State = journal.Quarantined
			return n.Records.Save(&own)
		}),
		Reporter: dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()}), Now: func() time.Time { return now },
	}
	repair.Look(t.Context())
	now = now.Add(time.Hour)
	repair.Look(t.Context())
	if text := log.String(); !strings.Contains(text, "quarantined") || strings.Contains(text, "devices taken back") {
		t.Errorf("logged %s", text)
	}
}

// onlyRuns is the process ID of the one process that runs.
type onlyRuns int

func (o onlyRuns) IsAlive(p journal.Process) bool { return p.PID == int(o) }

// allRun is a node on which each process runs.
type allRun struct{}

func (allRun) IsAlive(journal.Process) bool { return true }

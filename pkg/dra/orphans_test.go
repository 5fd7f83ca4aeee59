package dra_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/dra"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// TestOrphanClaims: one whose ResourceClaim is certainly gone, for long enough, and
// that no sandbox holds, is taken back. All else stays.
func TestOrphanClaims(t *testing.T) {
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	other := allocated("uid-1", "gpu-0000-3b-00-0")
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
		"there":                       {objects: []runtime.Object{worker, allocated("uid-1", "gpu-0000-3b-00-0")}, after: time.Hour},
		"the API does not answer":     {objects: []runtime.Object{worker}, fail: errors.New("no route to host"), after: time.Hour},
		"another cluster":             {after: time.Hour},
		"prepared by hand":            {objects: []runtime.Object{worker}, after: time.Hour, left: 1, change: func(rec *journal.Record) { rec.Plan.Claim.Pods = nil }},
		"a VM has it":                 {objects: []runtime.Object{worker}, after: time.Hour, left: 1, change: sandbox(4711)},
		"perhaps a VM has it":         {objects: []runtime.Object{worker}, after: time.Hour, left: 1, change: sandbox(0)},
		"its VM has ended":            {objects: []runtime.Object{worker}, after: time.Hour, released: true, change: sandbox(4712)},
		"quarantined":                 {objects: []runtime.Object{worker}, after: time.Hour, change: func(rec *journal.Record) { rec.State = journal.Quarantined }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.k.AddGPU(0x3b)
			n.prepared("uid-1", "gpu-0000-3b-00-0")
			if rec, err := n.records.Load("uid-1"); err != nil {
				t.Fatal(err)
			} else if tt.change != nil {
				own := *rec
				tt.change(&own)
				if err := n.records.Save(&own); err != nil {
					t.Fatal(err)
				}
			}
			client := fake.NewClientset(tt.objects...)
			if tt.fail != nil {
				client.PrependReactor("get", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, tt.fail })
			}
			now, released, events := time.Now(), "", &eventLog{}
			repair := dra.Repair{
				Client: client, Node: "worker-1", Records: n.records.List, Strays: n.claims,
				Release:  func(_ context.Context, ref plan.Ref) error { released = ref.UID; return nil },
				Alive:    func(p journal.Process) bool { return p.PID == 4711 },
				Reporter: dra.NewReporter(client, events, quiet()), Metrics: n.metrics, Log: quiet(), Now: func() time.Time { return now },
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
			found, _ := gauges(t, n.metrics, "kata_vfio_orphans")
			if found["claim"] != tt.left || events.count("left alone") != int(tt.left) {
				t.Errorf("%v left, %d events; want %v", found, events.count(""), tt.left)
			}
		})
	}
}

// TestAGapInItsAbsenceBeginsItAnew: a claim that is there in between is none.
func TestAGapInItsAbsenceBeginsItAnew(t *testing.T) {
	n := newNode(t)
	n.k.AddGPU(0x3b)
	n.prepared("uid-1", "gpu-0000-3b-00-0")
	there := true
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}, allocated("uid-1", "gpu-0000-3b-00-0"))
	client.PrependReactor("get", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		return !there, &resourceapi.ResourceClaim{}, nil // of another UID
	})
	now, released := time.Now(), 0
	repair := dra.Repair{
		Client: client, Node: "worker-1", Records: n.records.List, Strays: n.claims, Metrics: n.metrics, Log: quiet(),
		Release:  func(context.Context, plan.Ref) error { released++; return nil },
		Reporter: dra.NewReporter(client, &eventLog{}, quiet()), Now: func() time.Time { return now },
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

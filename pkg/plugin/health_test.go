package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
)

// stuckClaims are claims that are stuck, and damaged records.
type stuckClaims struct {
	claims  metrics.StuckClaims
	damaged int
}

func (s *stuckClaims) StuckClaims(time.Time) metrics.StuckClaims { return s.claims }
func (s *stuckClaims) Damaged() int                              { return s.damaged }

// verified is bootstrap's record.
type verified func() (*state.Record, error)

func (v verified) Read() (*state.Record, error) { return v() }

// wellNode is a node in which nothing is wrong, and that bootstrap never looked at.
func wellNode() *plugin.HealthSource {
	return &plugin.HealthSource{
		NRI: func() bool { return true }, Refuses: func() *plan.NotReady { return nil },
		Bootstrap: verified(func() (*state.Record, error) { return nil, fmt.Errorf("read: %w", fs.ErrNotExist) }),
		Hanging:   func() []plugin.Hanging { return nil }, Claims: &stuckClaims{},
		Disks: disks(func() []journal.Space { return []journal.Space{{Dir: "/var/lib/kata-vfio", Free: plugin.ScarceDisk}} }),
	}
}

// TestHealthSaysWhatIsWrong, in words that stay the same while nothing changes.
func TestHealthSaysWhatIsWrong(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(age time.Duration) time.Time { return now.Add(-age) }
	s := wellNode()
	if diff := cmp.Diff(&cluster.NodeHealth{NRI: true}, s.Health(now)); diff != "" {
		t.Errorf("a node that is well (-want +got):\n%s", diff)
	}
	s.NRI = func() bool { return false }
	s.Refuses = func() *plan.NotReady { return &plan.NotReady{Obstacle: "DiskFull", Text: "no room"} }
	record := state.NewRecord(at(3*time.Hour), "pool", "changes needed", []state.Difference{{Part: "containerd", Path: "/etc/x", What: "changed", Since: at(4 * time.Hour)}}, nil)
	s.Bootstrap = verified(func() (*state.Record, error) { return record, nil })
	s.Hanging = func() []plugin.Hanging {
		return []plugin.Hanging{{"0000:3c:00.0 (/sys/bus/pci/drivers/b/unbind)", at(time.Minute)}, {"0000:3b:00.0 (reset)", at(2 * time.Minute)}}
	}
	s.Claims = &stuckClaims{metrics.StuckClaims{Count: 2, State: journal.Releasing, Since: at(time.Hour)}, 1}
	s.Disks = disks(func() []journal.Space {
		return []journal.Space{{Dir: "/var/lib/kata-vfio", Free: plugin.ScarceDisk - 1}, {Dir: "/lost", Err: errors.New("input/output error")}}
	})
	want := &cluster.NodeHealth{
		Refuses:   "DiskFull: no room",
		Bootstrap: &cluster.BootstrapHealth{Outcome: "changes needed", Drift: []cluster.Drift{{Part: "containerd", Path: "/etc/x", What: "changed", Since: "2026-11-22T08:00:00Z"}}},
		Alerts: []cluster.NodeAlert{
			{Name: "KataVFIOClaimStuck", Text: "claims that are stuck: 2, the oldest releasing since 2026-11-22T11:00:00Z"},
			{Name: "KataVFIODiskScarce", Text: "the disk of /var/lib/kata-vfio has less than 256 MiB free: new claims are refused once it is full"},
			{Name: "KataVFIOJournalDamaged", Text: "records of the journal that can't be read: 1"},
			{Name: "KataVFIOKernelStuck", Text: "writes that hang in the kernel: 2, the oldest for 0000:3b:00.0 (reset) since 2026-11-22T11:58:00Z"},
			{Name: "KataVFIONodeNotVerified", Text: "bootstrap has not compared the node with its blueprint since 2026-11-22T09:00:00Z"},
		},
	}
	for _, when := range []time.Time{now, now.Add(time.Minute)} {
		if diff := cmp.Diff(want, s.Health(when)); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", when, diff)
		}
	}
	s.Bootstrap = verified(func() (*state.Record, error) { return nil, state.ErrDamaged })
	if got := s.Health(now).Bootstrap; got == nil || got.Outcome != "unreadable" {
		t.Errorf("a damaged record: %+v, want the outcome unreadable", got)
	}
}

// nodesSlice is a slice at the API server.
func nodesSlice(name, node string, annotations map[string]string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       resourceapi.ResourceSliceSpec{Driver: "kata-vfio.dev", NodeName: &node, Pool: resourceapi.ResourcePool{Name: node}},
	}
}

// TestHealthIsWrittenAtAChange, once an hour without one, and again after a failure. Nothing else of a slice changes.
func TestHealthIsWrittenAtAChange(t *testing.T) {
	client := fake.NewClientset(nodesSlice("b", "worker-1", nil), nodesSlice("a", "worker-1", map[string]string{"other": "stays"}))
	fails := error(nil)
	client.PrependReactor("update", "resourceslices", func(k8stesting.Action) (bool, runtime.Object, error) { return fails != nil, nil, fails })
	var log bytes.Buffer
	now, source := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), wellNode()
	w := plugin.HealthWatch{
		Node: "worker-1", Slices: client.ResourceV1().ResourceSlices(), Source: source,
		Log: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now },
	}
	for i, step := range []struct {
		later   time.Duration
		nri     bool
		fails   error
		updated string // in the annotation
		warns   bool
	}{
		{nri: true, updated: "2026-11-22T12:00:00Z"},
		{later: 15 * time.Second, updated: "2026-11-22T12:00:00Z"}, // too soon after the last write
		{later: 45 * time.Second, nri: true, updated: "2026-11-22T12:00:00Z"},
		{later: time.Minute, fails: errors.New("conflict"), updated: "2026-11-22T12:00:00Z", warns: true},
		{later: time.Minute, fails: errors.New("conflict"), updated: "2026-11-22T12:00:00Z"},
		{later: time.Minute, updated: "2026-11-22T12:04:00Z"},
		{later: 59 * time.Minute, updated: "2026-11-22T12:04:00Z"},
		{later: time.Minute, updated: "2026-11-22T13:04:00Z"},
	} {
		now, fails = now.Add(step.later), step.fails
		source.NRI = func() bool { return step.nri }
		log.Reset()
		w.Look(t.Context())
		got, err := client.ResourceV1().ResourceSlices().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		health, err := cluster.DecodeHealth(got)
		if err != nil || health == nil || health.Updated != step.updated || got.Annotations["other"] != "stays" {
			t.Errorf("step %d: %+v (%v), want one of %s, and the other annotation", i, got.Annotations, err, step.updated)
		}
		if warned := strings.Contains(log.String(), "not published"); warned != step.warns {
			t.Errorf("step %d: logged %q, want a warning: %t", i, log.String(), step.warns)
		}
	}
	if b, err := client.ResourceV1().ResourceSlices().Get(t.Context(), "b", metav1.GetOptions{}); err != nil || len(b.Annotations) != 0 {
		t.Errorf("the other slice has %v: %v", b.Annotations, err)
	}
}

// TestHealthOutlivesAFormerInstance, which writes until a rolling update has ended it.
func TestHealthOutlivesAFormerInstance(t *testing.T) {
	const former = `{"updated":"2026-11-22T12:00:10Z","nri":false}`
	client := fake.NewClientset(nodesSlice("a", "worker-1", map[string]string{cluster.AnnotationHealth: former}))
	all := client.ResourceV1().ResourceSlices()
	now := time.Date(2026, 11, 22, 12, 0, 20, 0, time.UTC)
	w := plugin.HealthWatch{Node: "worker-1", Slices: all, Source: wellNode(), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }}
	updates := func() (n int) {
		for _, a := range client.Actions() {
			if a.Matches("update", "resourceslices") {
				n++
			}
		}
		return n
	}
	for i, step := range []struct {
		former bool // that it writes before the look
		writes int  // of both, after the look
	}{{false, 1}, {true, 3}, {false, 3}, {true, 5}} {
		if step.former {
			if _, err := all.Update(t.Context(), nodesSlice("a", "worker-1", map[string]string{cluster.AnnotationHealth: former}), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.Look(t.Context())
		got, err := all.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := cluster.DecodeHealth(got); err != nil || !h.NRI || updates() != step.writes {
			t.Errorf("step %d: %+v (%v) after %d writes, want NRI after %d", i, h, err, updates(), step.writes)
		}
		now = now.Add(time.Minute)
	}
}

// TestHealthWaitsForASlice: a node that has published nothing yet says nothing, and says it later.
func TestHealthWaitsForASlice(t *testing.T) {
	client := fake.NewClientset()
	w := plugin.HealthWatch{Node: "worker-1", Slices: client.ResourceV1().ResourceSlices(), Source: wellNode(), Log: slog.New(slog.DiscardHandler), Now: time.Now}
	w.Look(t.Context())
	if _, err := client.ResourceV1().ResourceSlices().Create(context.Background(), nodesSlice("a", "worker-1", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Look(t.Context())
	got, err := client.ResourceV1().ResourceSlices().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || !json.Valid([]byte(got.Annotations[cluster.AnnotationHealth])) {
		t.Errorf("the slice has %v: %v", got.Annotations, err)
	}
}

// TestHealthSurvivesItsSlice: the slice with the annotation may go with its pool. The health is in another one within minutes, and not only at
// the next change. A reason with another number is not a change.
func TestHealthSurvivesItsSlice(t *testing.T) {
	client := fake.NewClientset(nodesSlice("a", "worker-1", nil), nodesSlice("b", "worker-1", nil))
	all := client.ResourceV1().ResourceSlices()
	now, source, free := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), wellNode(), 0
	source.Refuses = func() *plan.NotReady {
		return &plan.NotReady{Text: fmt.Sprintf("the disk is full (%d MiB free)", free)}
	}
	w := plugin.HealthWatch{Node: "worker-1", Slices: all, Source: source, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }}
	for range 20 {
		w.Look(t.Context())
		now, free = now.Add(time.Minute), free+1
	}
	a, err := all.Get(t.Context(), "a", metav1.GetOptions{})
	if h, decodeErr := cluster.DecodeHealth(a); err != nil || decodeErr != nil || h.Updated != "2026-11-22T12:00:00Z" {
		t.Errorf("after 20 minutes of changing numbers: %+v (%v, %v), want what was written at first", h, err, decodeErr)
	}
	if err := all.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		w.Look(t.Context())
		now = now.Add(time.Minute)
	}
	b, err := all.Get(t.Context(), "b", metav1.GetOptions{})
	if h, decodeErr := cluster.DecodeHealth(b); err != nil || decodeErr != nil || h == nil || !h.NRI {
		t.Errorf("seven minutes after its slice was deleted: %+v (%v, %v), want it in the other one", h, err, decodeErr)
	}
}

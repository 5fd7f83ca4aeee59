package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
)

// Times of the node's health.
const (
	// healthEvery is the pause between two looks, and healthRest the shortest time between two writes.
	healthEvery = 15 * time.Second
	healthRest  = 30 * time.Second
	healthLimit = 30 * time.Second
	// healthSettled is how long another instance may still write the annotation, in a rolling update.
	healthSettled = 5 * time.Minute
	// healthChecked is the time after which the annotation is read again, because its slice may have been deleted.
	healthChecked = 5 * time.Minute
	// stuckAfter and unverifiedAfter are the times of the alerts KataVFIOClaimStuck and KataVFIONodeNotVerified.
	stuckAfter      = 10 * time.Minute
	unverifiedAfter = 2 * time.Hour
)

// HealthSource provides the facts that the health of a node consists of.
type HealthSource struct {
	// NRI reports whether the container runtime is connected.
	NRI func() bool
	// Refuses returns why the node refuses all new claims; nil if it does not.
	Refuses   func() *plan.NotReady
	Bootstrap metrics.BootstrapRecord
	// Hanging returns the writes that are still in the kernel after their deadline.
	Hanging func() []Hanging
	Claims  StuckClaims
	Disks   metrics.Disks
}

// Hanging is a write that the kernel has not answered in time.
type Hanging struct {
	// What is the function and the attribute of the write, "0000:3b:00.0 (/sys/...)".
	What  string
	Since time.Time
}

// StuckClaims counts claims that are stuck and records that can't be read; [metrics.Metrics] implements it.
type StuckClaims interface {
	StuckClaims(before time.Time) metrics.StuckClaims
	Damaged() int
}

// Health returns the node's health without its time. The texts contain points in time but no durations, so that the health stays the same
// while nothing changes.
func (s *HealthSource) Health(now time.Time) *cluster.NodeHealth {
	h := &cluster.NodeHealth{NRI: s.NRI()}
	if why := s.Refuses(); why != nil {
		h.Refuses = string(why.Obstacle) + ": " + why.Text
	}
	s.addBootstrap(h, now)
	if c := s.Claims.StuckClaims(now.Add(-stuckAfter)); c.Count > 0 {
		h.AddAlert("KataVFIOClaimStuck", fmt.Sprintf("claims that are stuck: %d, the oldest %s since %s", c.Count, c.State, stamp(c.Since)))
	}
	if all := s.Hanging(); len(all) > 0 {
		first := slices.MinFunc(all, func(a, b Hanging) int { return a.Since.Compare(b.Since) })
		h.AddAlert("KataVFIOKernelStuck", fmt.Sprintf("writes that hang in the kernel: %d, the oldest for %s since %s", len(all), first.What, stamp(first.Since)))
	}
	if n := s.Claims.Damaged(); n > 0 {
		h.AddAlert("KataVFIOJournalDamaged", fmt.Sprintf("records of the journal that can't be read: %d", n))
	}
	for _, disk := range s.Disks.Space() {
		if disk.Err == nil && disk.Free < ScarceDisk {
			h.AddAlert("KataVFIODiskScarce", fmt.Sprintf("the disk of %s has less than %d MiB free: new claims are refused once it is full", disk.Dir, ScarceDisk>>20))
		}
	}
	slices.SortStableFunc(h.Alerts, func(a, b cluster.NodeAlert) int { return strings.Compare(a.Name, b.Name) })
	return h
}

// addBootstrap adds what bootstrap found. A node that bootstrap never looked at has no record.
func (s *HealthSource) addBootstrap(h *cluster.NodeHealth, now time.Time) {
	r, err := s.Bootstrap.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		h.Bootstrap = &cluster.BootstrapHealth{Outcome: "unreadable"}
		return
	}
	h.Bootstrap = &cluster.BootstrapHealth{Outcome: r.Outcome}
	for i := range r.Differences {
		d := &r.Differences[i]
		h.Bootstrap.AddDrift(clusterDrift(d))
	}
	if now.Sub(r.At) > unverifiedAfter {
		h.AddAlert("KataVFIONodeNotVerified", "bootstrap has not compared the node with its blueprint since "+stamp(r.At))
	}
}

func clusterDrift(d *state.Difference) cluster.Drift {
	return cluster.Drift{Part: d.Part, Path: d.Path, What: d.What, Since: stamp(d.Since)}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// HealthWatch publishes the node's health in an annotation of one of its slices: when the health changes, and at least every
// [cluster.HealthRenewed] seconds. It is not safe for concurrent use.
type HealthWatch struct {
	Node   string
	Slices resourceclient.ResourceSliceInterface
	Source *HealthSource
	Log    *slog.Logger
	Now    func() time.Time

	began   time.Time
	said    string // the health that was written last, without its time
	refuses string // why the node refuses claims, in the health that was written last
	failed  string
	// saidAt is the time in the annotation, and lookedAt when the annotation was last read or written.
	saidAt, lookedAt time.Time
}

// Look writes the health if it has changed, or if the annotation is due to be renewed. The next look tries a failed write again.
func (w *HealthWatch) Look(ctx context.Context) {
	now := w.Now()
	if w.began.IsZero() {
		w.began = now
	}
	if now.Sub(w.lookedAt) < healthRest {
		return
	}
	h := w.Source.Health(now)
	if fabric.SameReason(h.Refuses, w.refuses) { // numbers such as the free space change all the time, and are not a change of the reason
		h.Refuses = w.refuses
	}
	text, err := h.Encode()
	if err == nil && text == w.said && now.Sub(w.began) > healthSettled && now.Sub(w.lookedAt) < healthChecked &&
		now.Sub(w.saidAt) < cluster.HealthRenewed*time.Second {
		return
	}
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, healthLimit, errors.New("no answer in time"))
		defer cancel()
		w.saidAt, err = w.write(ctx, h, text, now)
	}
	if err == nil {
		w.said, w.lookedAt, w.refuses, w.failed = text, now, h.Refuses, ""
		return
	}
	if ctx.Err() == nil && err.Error() != w.failed {
		w.failed = err.Error()
		w.Log.WarnContext(ctx, "the node's health is not published: `kubectl kata-vfio status` shows the former one", slog.Any("err", err))
	}
}

// write annotates the first slice of the node, unless it says the same and needs no renewal, and returns the time in the annotation. The
// library that writes slices leaves annotations as they are.
func (w *HealthWatch) write(ctx context.Context, h *cluster.NodeHealth, text string, now time.Time) (time.Time, error) {
	ours := fields.Set{resourceapi.ResourceSliceSelectorDriver: v1alpha1.DriverName, resourceapi.ResourceSliceSelectorNodeName: w.Node}
	list, err := w.Slices.List(ctx, metav1.ListOptions{FieldSelector: ours.String()})
	if err != nil {
		return time.Time{}, fmt.Errorf("read the node's ResourceSlices: %w", err)
	}
	if len(list.Items) == 0 {
		return time.Time{}, errors.New("the node has no ResourceSlice yet")
	}
	s := slices.MinFunc(list.Items, func(a, b resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	if at, ok := says(&s, text); ok && now.Sub(at) < cluster.HealthRenewed*time.Second {
		return at, nil
	}
	h.Updated = stamp(now)
	if text, err = h.Encode(); err != nil {
		return time.Time{}, fmt.Errorf("encode the node's health: %w", err)
	}
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[cluster.AnnotationHealth] = text
	// If the library has written the slice meanwhile, the update fails with a conflict, and the next look tries again.
	if _, err := w.Slices.Update(ctx, &s, metav1.UpdateOptions{}); err != nil {
		return time.Time{}, fmt.Errorf("annotate ResourceSlice %s: %w", s.Name, err)
	}
	return now, nil
}

// says reports whether a slice already has the health, and the time in its annotation.
func says(s *resourceapi.ResourceSlice, text string) (time.Time, bool) {
	h, err := cluster.DecodeHealth(s)
	if err != nil || h == nil {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, h.Updated)
	h.Updated = ""
	known, encodeErr := h.Encode()
	return at, err == nil && encodeErr == nil && known == text
}

// hanging returns the writes that hang.
func (s *service) hanging() []Hanging {
	var all []Hanging
	for _, e := range s.node.Kernel.Stuck() {
		all = append(all, Hanging{fmt.Sprintf("%s (%s)", e.Address, cmp.Or(e.Path, e.Operation)), e.Since})
	}
	return all
}

// watchHealth publishes the node's health until ctx ends. It first waits as long as the first write of the slices may wait, because the
// annotation needs a slice.
func (s *service) watchHealth(ctx context.Context) error {
	w := HealthWatch{
		Node: s.config.Node.Name, Slices: s.client.ResourceV1().ResourceSlices(), Log: s.log, Now: time.Now,
		Source: &HealthSource{
			NRI: s.sandboxes.nri.Connected, Refuses: func() *plan.NotReady { return s.publisher.Published().NotReady },
			Bootstrap: s.bootstrap, Hanging: s.hanging, Claims: s.metrics, Disks: s.config.Node.Reserves(),
		},
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(dra.StartSpread):
	}
	return everySpread(ctx, dra.StartSpread, healthEvery, w.Look)
}

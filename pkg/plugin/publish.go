package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// publishEvery is the pause after which the plugin publishes without a change: it retries what failed, and removes
// withdrawn devices after some time.
const publishEvery = 30 * time.Second

// publish publishes after each new snapshot, each claim and each pause, until ctx ends.
func (s *service) publish(ctx context.Context) error {
	snapshots, cancel := s.watcher.Subscribe()
	defer cancel()
	return Publishing{
		Publisher: s.publisher, Slices: s.helper, Changed: s.changes.publish, Log: s.log, Observer: s,
	}.Follow(ctx, snapshots)
}

// Publishing publishes the snapshots of a node.
type Publishing struct {
	Publisher *dra.Publisher
	Slices    dra.Slices
	// Changed wakes it, for example after a claim.
	Changed <-chan struct{}
	Log     *slog.Logger
	// Observer, which may be nil, gets each snapshot.
	Observer PublishObserver
}

// PublishObserver looks at each snapshot before and after it is published.
type PublishObserver interface {
	BeforePublish(ctx context.Context, snap *device.Snapshot)
	AfterPublish(ctx context.Context, snap *device.Snapshot)
}

// Follow publishes each new snapshot until ctx ends. It publishes the latest snapshot again when Changed is signaled, and after each pause.
func (p Publishing) Follow(ctx context.Context, snapshots <-chan *device.Snapshot) error {
	var snap *device.Snapshot
	unpublished := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case snap = <-snapshots:
		case <-p.Changed:
		// The pause starts over after each publication, whatever caused the publication.
		case <-time.After(varied(publishEvery)):
		}
		if snap == nil {
			continue
		}
		if p.Observer != nil {
			p.Observer.BeforePublish(ctx, snap)
		}
		unpublished = p.once(ctx, snap, unpublished)
		if p.Observer != nil {
			p.Observer.AfterPublish(ctx, snap)
		}
	}
}

// once publishes once and returns the error's text. It logs an error that differs from the last.
func (p Publishing) once(ctx context.Context, snap *device.Snapshot, last string) string {
	err := p.Publisher.Publish(ctx, p.Slices, snap)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != last {
		p.Log.ErrorContext(ctx, "not published", slog.Any("err", err))
	}
	return err.Error()
}

// publishedNode provides what the publisher needs to know of the service's node. It implements [dra.PublishedNode].
type publishedNode struct{ service *service }

// PlanNode implements [dra.PublishedNode].
func (n publishedNode) PlanNode(ctx context.Context, snap *device.Snapshot) (plan.Node, error) {
	return n.service.node.Preparer.PlanNode(ctx, snap)
}

// Failing implements [dra.PublishedNode].
func (n publishedNode) Failing(a pci.Address) []rule.Failure { return n.service.monitor.Failing(a) }

// Drains implements [dra.PublishedNode]. It leaves out marks that can't be read: [DrainWatch] logs them, and Prepare refuses claims because
// of them.
func (n publishedNode) Drains(snap *device.Snapshot) []maintain.Draining {
	drains, _ := n.service.node.Maintainer.DrainsIn(snap)
	return drains
}

// Lost implements [dra.PublishedNode].
func (n publishedNode) Lost() map[string]string { return n.service.sandboxes.table.Withdrawn() }

// Versions implements [dra.PublishedNode]. If bootstrap's record can't be read, Kata's version is empty; metrics and alerts report the
// record.
func (n publishedNode) Versions() publish.Versions {
	v := publish.Versions{Plugin: metrics.ReadBuild().Version}
	if r, err := n.service.bootstrap.Read(); err == nil {
		v.Kata = r.Kata
	}
	return v
}

// AfterPublish implements [PublishObserver].
func (s *service) AfterPublish(ctx context.Context, snap *device.Snapshot) {
	s.note(ctx, snap)
	s.countDomains(ctx, snap)
}

// note writes the run files for the audit. Serving does not depend on them: an error is logged, and the next snapshot
// tries again.
func (s *service) note(ctx context.Context, snap *device.Snapshot) {
	published := s.publisher.Published()
	s.reportNotReady(ctx, published.NotReady)
	published.BootID, published.Config, published.Sanitizers = snap.Host.BootID, s.config.Node.Node, s.config.Node.Sanitizers
	if err := errors.Join(s.notes.Keep(snap), s.notes.Publish(published)); err != nil {
		s.log.WarnContext(ctx, "run files for the audit not written", slog.Any("err", err))
	}
}

// reportNotReady logs when the node begins or ceases to refuse all new claims, and records an Event of the node.
func (s *service) reportNotReady(ctx context.Context, why *plan.NotReady) {
	text := ""
	if why != nil {
		text = string(why.Obstacle) + ": " + why.Text
	}
	if text == s.refused {
		return
	}
	s.refused = text
	if text == "" {
		s.log.InfoContext(ctx, "new claims are accepted again")
		s.reporter.NodeEvent(s.config.Node.Name, corev1.EventTypeNormal, rule.ClaimsAccepted, "Publish", "new claims are accepted again")
		return
	}
	s.log.ErrorContext(ctx, "all new claims are refused, and all devices tainted", slog.String("why", text))
	s.reporter.NodeEvent(s.config.Node.Name, corev1.EventTypeWarning, rule.ClaimsRefused, "Publish", "all new claims are refused, and all devices tainted: "+text)
}

// BeforePublish implements [PublishObserver]: it logs the problems of the node config on this node whenever they change.
func (s *service) BeforePublish(ctx context.Context, snap *device.Snapshot) {
	problems := nodeconfig.Select(s.node.Node, snap).Problems()
	same := func(a, b rule.Verdict) bool { return a.Sentence() == b.Sentence() }
	if slices.EqualFunc(problems, s.problems, same) {
		return
	}
	s.problems = problems
	for i := range problems {
		p := &problems[i]
		s.log.WarnContext(ctx, "node config does not fit the node",
			slog.String("code", string(p.Code)), slog.String("rule", p.Object), slog.String("problem", p.Text), slog.String("fix", p.Fix))
	}
}

// changes wakes the publisher, and the loop that keeps devices warm. It implements [dra.Waker].
type changes struct{ publish, warm chan struct{} }

func newChanges() changes {
	return changes{publish: make(chan struct{}, 1), warm: make(chan struct{}, 1)}
}

// Wake makes the publisher publish again, and the warm devices be looked at again. It never blocks.
func (c changes) Wake() {
	for _, c := range []chan struct{}{c.publish, c.warm} {
		select {
		case c <- struct{}{}:
		default: // it is due already
		}
	}
}

// RunFiles are the files that the plugin writes for the audit: see [facts.Baseline] and [facts.Published]. A file is
// always replaced, so that readers and a crash never see half of it. RunFiles is safe for concurrent use.
type RunFiles struct {
	dir string

	mu        sync.Mutex // guards the fields below and the files
	kept      bool       // the baseline exists
	published []byte
}

// NewRunFiles returns the files in a directory, which the first write creates.
func NewRunFiles(dir string) *RunFiles { return &RunFiles{dir: dir} }

// Keep writes the baseline, unless this boot already has one.
func (n *RunFiles) Keep(snap *device.Snapshot) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	// The first baseline of a boot stays. A plugin that starts later would record changes since the first baseline as normal.
	if n.kept || n.hasBaseline(snap.Host.BootID) {
		n.kept = true
		return nil
	}
	data, err := json.Marshal(facts.NewBaseline(snap))
	if err == nil {
		err = n.write(facts.BaselineFile, data)
	}
	if err != nil {
		return fmt.Errorf("write the baseline of ACS for the audit: %w", err)
	}
	n.kept = true
	return nil
}

// hasBaseline reports whether there is a valid baseline of the boot.
func (n *RunFiles) hasBaseline(bootID string) bool {
	data, err := os.ReadFile(filepath.Join(n.dir, facts.BaselineFile))
	if err != nil {
		return false
	}
	var b facts.Baseline
	return json.Unmarshal(data, &b) == nil && b.BootID == bootID
}

// Publish writes which functions can be allocated, and the facts by which they are judged. It writes nothing if neither has changed.
func (n *RunFiles) Publish(published facts.Published) error {
	data, err := json.Marshal(published)
	if err != nil {
		return fmt.Errorf("write what is published for the audit: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if bytes.Equal(data, n.published) {
		return nil
	}
	if err := n.write(facts.PublishedFile, data); err != nil {
		return fmt.Errorf("write what is published for the audit: %w", err)
	}
	n.published = data
	return nil
}

// write replaces a file.
func (n *RunFiles) write(name string, data []byte) error {
	// /run is empty after each boot.
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	// The temporary file is in the same directory: rename(2) fails between mounts, and readers see the old file or the new one.
	return renameio.WriteFile(filepath.Join(n.dir, name), append(data, '\n'), 0o600, renameio.WithTempDir(n.dir))
}

package plugin

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// TestProbesComeFirst: whatever the start waits for, or fails at, the process answers its liveness probe.
func TestProbesComeFirst(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s := &service{log: slog.New(slog.DiscardHandler), config: Config{
		Probes: filepath.Join(dir, "probes.sock"), Node: node.Config{Root: filepath.Join(dir, "none")},
	}}
	err := s.start(t.Context())
	if err == nil || s.probes == nil {
		t.Errorf("start = %v, with probes: %t; want probes although the node can't be opened", err, s.probes != nil)
	}
	if err := s.stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// slowRecovery is a node whose devices are reset until it is told that they are done.
type slowRecovery struct{ begun, done chan struct{} }

func (r slowRecovery) MarkEarlier(context.Context) error { return nil }

func (r slowRecovery) Recover(context.Context) (*prepare.Recovery, error) {
	close(r.begun)
	<-r.done
	return &prepare.Recovery{}, nil
}

// TestProbesAnswerDuringTheRecovery: while devices are reset, the plugin lives and is not ready, and the kubelet hears both at once.
func TestProbesAnswerDuringTheRecovery(t *testing.T) {
	t.Chdir(t.TempDir())
	s := &service{log: slog.New(slog.DiscardHandler), config: Config{Probes: "probes.sock"}}
	health := dra.NewHealth()
	if err := s.listenProbes(t.Context(), health); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.probes.Serve(ctx) })
	slow := slowRecovery{begun: make(chan struct{}), done: make(chan struct{})}
	s.recovery = &Recovery{Node: slow, Patience: time.Minute, Log: s.log}
	began := make(chan error, 1)
	go func() { began <- s.recovery.Begin(ctx, g) }()
	<-slow.begun
	asked := time.Now()
	if err := serving.AskProbe(ctx, "probes.sock", "/healthz"); err != nil {
		t.Errorf("liveness during the recovery: got %v, want an answer", err)
	}
	if err := serving.AskProbe(ctx, "probes.sock", "/readyz"); err == nil || !strings.Contains(err.Error(), "not ready: ") {
		t.Errorf("readiness during the recovery: got %v, want an answer that says not ready", err)
	}
	// The probes of the chart wait for five seconds at least.
	if took := time.Since(asked); took > time.Second || len(began) != 0 {
		t.Errorf("both answers took %s, with the start waiting: %t; want less than a second while it waits", took, len(began) == 0)
	}
	close(slow.done)
	if err := <-began; err != nil {
		t.Error(err)
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

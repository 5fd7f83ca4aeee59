package plugin

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/node"
)

// TestProbesComeFirst: whatever the start waits for, or fails at, the process answers its liveness probe.
func TestProbesComeFirst(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s := &service{log: slog.New(slog.DiscardHandler), config: Config{
		Probes: filepath.Join(dir, "probes.sock"), Node: node.NodeConfig{Root: filepath.Join(dir, "none")},
	}}
	err := s.start(t.Context())
	if err == nil || s.probes == nil {
		t.Errorf("start = %v, with probes: %t; want probes although the node can't be opened", err, s.probes != nil)
	}
	if err := s.stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

package plugin

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
)

// The plugin says by metric and log that its ledger was changed, and no ledger is not a problem.
func TestLedgerIsVerified(t *testing.T) {
	s := &service{metrics: noMetrics()}
	s.config.Node.Root, s.config.Node.StateDir = t.TempDir(), "state"
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))

	s.verifyLedger(t.Context())
	if at := gauge(t, s, "kata_vfio_ledger_verified_timestamp_seconds"); at != 0 {
		t.Errorf("no ledger was verified at %v", at)
	}

	w, err := writer.Open(t.Context(), writer.Config{Dir: s.config.Node.LedgerDir(), Node: "node-1"})
	if err == nil {
		_, err = w.Append(t.Context(), ledger.Event{Type: ledger.Start, Result: ledger.OK})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.verifyLedger(t.Context())
	problems, at := gauge(t, s, "kata_vfio_ledger_problems"), gauge(t, s, "kata_vfio_ledger_verified_timestamp_seconds")
	if problems != 0 || at == 0 || log.Len() > 0 {
		t.Errorf("%v problems at %v: %s", problems, at, log.String())
	}

	rewrite(t, filepath.Join(s.config.Node.LedgerDir(), ledger.SegmentName(0)), `"result":"ok"`, `"result":"no"`)
	s.verifyLedger(t.Context())
	if problems := gauge(t, s, "kata_vfio_ledger_problems"); problems == 0 || !strings.Contains(log.String(), "ledger was changed") {
		t.Errorf("%v problems: %s", problems, log.String())
	}
}

// watchedFS counts how many of the ledger's segments lie in memory at once: from their
// opening until they are closed.
type watchedFS struct {
	fs.FS
	open, most atomic.Int32
}

func (w *watchedFS) Open(name string) (fs.File, error) {
	f, err := w.FS.Open(name)
	if err != nil || !ledger.IsSegment(name) {
		return f, err
	}
	w.most.Store(max(w.most.Load(), w.open.Add(1)))
	for range 100 { // let others come
		runtime.Gosched()
	}
	return &watchedFile{f, w}, nil
}

type watchedFile struct {
	fs.File
	w *watchedFS
}

func (f *watchedFile) Close() error {
	f.w.open.Add(-1)
	return f.File.Close()
}

// TestLedgerIsVerifiedFileByFile: a year of it does not fit into the plugin's memory.
func TestLedgerIsVerifiedFileByFile(t *testing.T) {
	dir := t.TempDir()
	w, err := writer.Open(t.Context(), writer.Config{Dir: dir, Node: "node-1", SegmentBytes: 600})
	for range 20 {
		if err == nil {
			_, err = w.Append(t.Context(), ledger.Event{Type: ledger.Start, Result: ledger.OK})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	watched := &watchedFS{FS: os.DirFS(dir)}
	if r, err := verifyTwice(t.Context(), watched); err != nil || !r.OK() || r.Segments < 5 || watched.most.Load() != 1 {
		t.Errorf("verifyTwice = %+v, %v; %d files at once", r, err, watched.most.Load())
	}
}

// rewrite does what an intruder would.
func rewrite(t *testing.T, file, before, after string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(text, []byte(before)) {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte(before), []byte(after), 1), 0o600); err != nil {
		t.Fatal(err)
	}
}

func gauge(t *testing.T, s *service, name string) float64 {
	t.Helper()
	set, _ := metricstest.Gauges(t, s.metrics.Registry, name)
	return set[""]
}

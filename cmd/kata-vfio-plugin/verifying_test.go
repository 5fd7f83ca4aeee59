package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/dra"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// The plugin says by metric and log that its ledger was changed, and no ledger is no problem.
func TestTheLedgerIsVerified(t *testing.T) {
	s := &service{opts: &options{}, metrics: dra.NewMetrics(func() ([]*journal.Record, []error) { return nil, nil }, func() int { return 0 })}
	s.opts.node.Root, s.opts.node.StateDir = t.TempDir(), "state"
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))

	s.verifyLedger(t.Context())
	if at := gauge(t, s.metrics, "kata_vfio_ledger_verified_timestamp_seconds"); at != 0 {
		t.Errorf("no ledger was verified at %v", at)
	}

	w, err := writer.Open(t.Context(), writer.Config{Dir: s.opts.node.LedgerDir(), Node: "node-1"})
	if err == nil {
		_, err = w.Append(t.Context(), ledger.Event{Type: ledger.Start, Result: ledger.OK})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.verifyLedger(t.Context())
	problems, at := gauge(t, s.metrics, "kata_vfio_ledger_problems"), gauge(t, s.metrics, "kata_vfio_ledger_verified_timestamp_seconds")
	if problems != 0 || at == 0 || log.Len() > 0 {
		t.Errorf("%v problems at %v: %s", problems, at, log.String())
	}

	rewrite(t, filepath.Join(s.opts.node.LedgerDir(), ledger.SegmentName(0)), `"result":"ok"`, `"result":"no"`)
	s.verifyLedger(t.Context())
	if problems := gauge(t, s.metrics, "kata_vfio_ledger_problems"); problems == 0 || !strings.Contains(log.String(), "ledger is not what was written") {
		t.Errorf("%v problems: %s", problems, log.String())
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

func gauge(t *testing.T, m *dra.Metrics, name string) float64 {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

package plugin_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
)

// disks measures disks.
type disks func() []journal.Space

func (d disks) Space() []journal.Space { return d() }

// TestScarceDiskIsToldOnce, before claims are refused, and again when it was well meanwhile.
func TestScarceDiskIsToldOnce(t *testing.T) {
	var log bytes.Buffer
	free, err := int64(plugin.ScarceDisk), error(nil)
	w := plugin.DiskWatch{
		Disks: disks(func() []journal.Space {
			return []journal.Space{{Dir: "/var/lib/kata-vfio", Free: 40 << 30}, {Dir: "/ledger", Free: free, Err: err}}
		}),
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}
	for i, step := range []struct {
		free  int64
		err   error
		words string // of the log; empty if there is none new
	}{
		{free: plugin.ScarceDisk},
		{free: 200 << 20, words: "dir=/ledger freeMiB=200"},
		{free: 100 << 20},
		{err: errors.New("input/output error"), words: "input/output error"},
		{free: 300 << 20},
		{free: 10 << 20, words: "dir=/ledger freeMiB=10"},
	} {
		log.Reset()
		free, err = step.free, step.err
		w.Look(t.Context())
		if got := log.String(); (got == "") != (step.words == "") || !strings.Contains(got, step.words) {
			t.Errorf("step %d: logged %q, want %q", i, got, step.words)
		}
	}
}

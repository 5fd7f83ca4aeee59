package writer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// A torn write goes into a file of its own, is cut off the segment, and then an
// event tells of it, behind which the file gets its last name: a crash between
// has the event written once more, rather than not at all.
const (
	tornSuffix = ".torn"
	keptSuffix = ".kept"
)

// putAside takes a torn write off its segment.
func (w *Writer) putAside(s *ledger.Segment) error {
	name := fmt.Sprintf("%s-%d%s", strings.TrimSuffix(s.Name, filepath.Ext(s.Name)), s.Good, tornSuffix)
	if err := w.replace(name, s.Torn, 0o600); err != nil {
		return fmt.Errorf("put a torn write aside: %w", err)
	}
	f, err := os.OpenFile(w.path(s.Name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(s.Good); err != nil {
		return err
	}
	return f.Sync()
}

// recordTorn writes the events of torn writes that none tells of yet.
func (w *Writer) recordTorn() error {
	names, err := filepath.Glob(w.path("*" + tornSuffix))
	if err != nil {
		return err
	}
	for _, path := range names {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		kept := strings.TrimSuffix(path, tornSuffix) + keptSuffix
		e := ledger.Event{Type: ledger.Torn, Result: ledger.OK, Reason: fmt.Sprintf(
			"a write of %d bytes was cut off here, by a power failure, a kill or a full disk; what there was of it is in %s", info.Size(), filepath.Base(kept))}
		if err := w.commit([]ledger.Event{e}); err != nil {
			return err
		}
		if err := os.Rename(path, kept); err != nil {
			return err
		}
	}
	return nil
}

package dra

import (
	"context"
	"log/slog"
)

// ScarceDisk is how many bytes must be free on each disk of the plugin's state: with less
// the plugin warns, long before it refuses claims ([journal.FullError]). The alert
// KataVFIODiskScarce has the same number.
const ScarceDisk = 256 << 20

// DiskWatch warns while a disk of the plugin's state is about to be full. It is not safe
// for concurrent use.
type DiskWatch struct {
	// Dirs returns a directory of each disk.
	Dirs func() []string
	// Free returns how many bytes are free on a directory's disk.
	Free func(dir string) (int64, error)
	Log  *slog.Logger

	logged map[string]string // what was logged last of each directory; nothing where nothing was wrong
}

// Look looks once, and logs what is new.
func (w *DiskWatch) Look(ctx context.Context) {
	for _, dir := range w.Dirs() {
		w.lookAt(ctx, dir)
	}
}

func (w *DiskWatch) lookAt(ctx context.Context, dir string) {
	free, err := w.Free(dir)
	switch {
	case err != nil && w.isNew(dir, "unknown"):
		w.Log.WarnContext(ctx, "the room on the plugin's disk is not known", slog.String("dir", dir), slog.Any("err", err))
	case err == nil && free < ScarceDisk && w.isNew(dir, "scarce"):
		w.Log.WarnContext(ctx, "the plugin's disk is about to be full: free space, or new claims are refused soon",
			slog.String("dir", dir), slog.Int64("freeMiB", free>>20), slog.Int64("wantMiB", ScarceDisk>>20))
	case err == nil && free >= ScarceDisk:
		delete(w.logged, dir)
	}
}

// isNew reports whether something else was told last of a directory, and notes it.
func (w *DiskWatch) isNew(dir, what string) bool {
	if w.logged == nil {
		w.logged = map[string]string{}
	}
	last := w.logged[dir]
	w.logged[dir] = what
	return last != what
}

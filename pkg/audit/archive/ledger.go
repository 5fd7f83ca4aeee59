package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// LedgerLimit is the default size limit of a ledger's copy, in bytes. It is enough for the events of years, and half of an
// archive's largest size.
const LedgerLimit = 256 << 20

// LedgerCopy says which parts of the node's ledger an archive leaves out.
type LedgerCopy struct {
	// Segments is the number of the ledger's segments. LeftOut is the number of the oldest segments of which the archive has only the
	// hashes of the events. Events is the number of these events, and Bytes is their size. Chain, tree and signatures can still be
	// verified.
	Segments int   `json:"segments"`
	LeftOut  int   `json:"leftOut"`
	Events   int64 `json:"events"`
	Bytes    int64 `json:"bytes"`
	// Reason says why the archive does not have the ledger; empty if it does.
	Reason string `json:"reason,omitempty"`
}

// maxReason limits the text from an archive, which is not trusted.
const maxReason = 300

// String describes the missing parts in a sentence; empty if nothing is left out.
func (c *LedgerCopy) String() string {
	switch {
	case c == nil:
		return ""
	case c.Reason != "":
		return "the archive has nothing of the node's ledger: " + output.Shorten(c.Reason, maxReason)
	case c.LeftOut == 0:
		return ""
	}
	return fmt.Sprintf("the archive leaves out the oldest %d of the ledger's %s (%d MiB): it has only the hashes of the first %s",
		c.LeftOut, output.Count(c.Segments, "segment"), c.Bytes>>20, output.Count(int(c.Events), "event"))
}

// Ledger copies the node's ledger: as many of the newest segments as fit into limit bytes, and the hashes of the events of older
// ones, as retention leaves them. Call it after all other reads, before [Recorder.Rewrite] and [Recorder.Write]. It returns nil if
// the whole ledger fits, or there is none.
func (r *Recorder) Ledger(ctx context.Context, limit int64) (*LedgerCopy, error) {
	seen := r.node.WithTap(r.saw)
	names, err := seen.ReadDir(ledger.DefaultDir)
	if err != nil {
		return nil, nil //nolint:nilerr // the recorder has the error, which says why there is none
	}
	// The recorder keeps the result, even if it is an error. The private key and the key of the pseudonyms are left out: with them, a
	// reader of the archive could sign events or find names.
	_, _ = seen.ReadAtMost(path.Join(ledger.DefaultDir, ledger.PublicKeyFile), maxWide)
	l := &ledgerFiles{r: r, room: min(limit, maxTotal/2), kept: map[string][]byte{}}
	// Segments are named in the order of their events, so this begins with the newest ones, which get the room first.
	for _, name := range slices.Backward(names) {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("copy the ledger: %w", err)
		}
		if l.copy.Reason == "" && isHistory(name) {
			l.add(name)
		}
	}
	return l.finish(), nil
}

// isHistory reports whether a file of the ledger's directory has events, or hashes of
// events.
func isHistory(name string) bool { return hasEvents(name) || ledger.IsHashes(name) }

// hasEvents reports whether a file of the ledger's directory has events.
func hasEvents(name string) bool { return ledger.IsSegment(name) || ledger.IsKept(name) }

// ledgerFiles collects the files of a ledger for an archive, the newest first.
type ledgerFiles struct {
	r    *Recorder
	copy LedgerCopy
	// room is the number of bytes that may still be copied.
	room int64
	// kept are the files that the archive gets.
	kept map[string][]byte
}

// add adds a file. From the first segment that does not fit, it adds hashes only.
func (l *ledgerFiles) add(name string) {
	place := path.Join(ledger.DefaultDir, name)
	data, err := l.r.node.ReadAtMost(place, ledger.MaxSegment)
	if errors.Is(err, fs.ErrNotExist) {
		return // retention dropped the file after it was listed
	}
	if err != nil {
		l.copy.Reason = fmt.Sprintf("%s could not be read: %v", name, err)
		return
	}
	if hasEvents(name) {
		l.copy.Segments++
		// A quarter of the room is left for the hashes of the segments that do not fit.
		if l.copy.LeftOut > 0 || int64(len(data)) > min(l.room*3/4, maxFile) {
			name, data = l.leaveOut(name, data)
		}
	}
	if name == "" {
		return
	}
	if l.room -= int64(len(data)); l.room < 0 {
		l.copy.Reason = "even the hashes of its events are more than an archive takes; copy the directory " + ledger.DefaultDir
		return
	}
	l.kept[name] = data
}

// leaveOut leaves a file with events out, and returns the file that takes its place: none for the kept events of a
// dropped segment, because their hashes are in a file already.
func (l *ledgerFiles) leaveOut(name string, data []byte) (string, []byte) {
	l.copy.LeftOut++
	l.copy.Bytes += int64(len(data))
	if ledger.IsKept(name) {
		l.copy.Events += int64(bytes.Count(data, []byte("\n")))
		return "", nil
	}
	instead, hashes := ledger.Hashes(name, data)
	l.copy.Events += int64(len(hashes) / tlog.HashSize)
	return instead, hashes
}

// finish removes all other files of the ledger from the recorder.
func (l *ledgerFiles) finish() *LedgerCopy {
	r := l.r
	dir := r.place(ledger.DefaultDir, true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.copy.Reason != "" {
		clear(l.kept)
	}
	list := r.entry(dir)
	for _, name := range list.names {
		if isHistory(name) {
			delete(r.entries, path.Join(dir, name))
		}
	}
	list.names = slices.DeleteFunc(list.names, func(name string) bool { return hasEvents(name) && l.kept[name] == nil && l.copy.LeftOut > 0 })
	for name, data := range l.kept {
		place := path.Join(dir, name)
		r.entries[place] = &entry{data: data, read: true, opened: true}
		list.names = append(list.names, name)
	}
	slices.Sort(list.names)
	list.names = slices.Compact(list.names)
	if l.copy.LeftOut == 0 && l.copy.Reason == "" {
		return nil
	}
	return &l.copy
}

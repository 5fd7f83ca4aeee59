package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/mod/sumdb/tlog"
)

// When the ledger exceeds its size limit, retention drops events of the namespaces, or of the node itself, that use more than their
// share (see package ledger/writer). It replaces a segment by two files: one with the hashes of all its events, and one with the
// lines of the events that it keeps, in their order. The hashes prove the kept lines.

// KeptName returns the name of the file with the events that retention kept of a dropped segment. first is the segment's first event.
func KeptName(first int64) string { return fmt.Sprintf("%016d%s", first, keptSuffix) }

// IsKept reports whether a file's name is that of the kept events of a dropped segment.
func IsKept(name string) bool {
	_, suffix, ok := parseFirst(name)
	return ok && suffix == keptSuffix
}

// ReadKept returns the lines of the kept events of a dropped segment, up to the first line that the segment's hashes don't prove.
func ReadKept(fsys fs.FS, first int64) (lines [][]byte, damage *DamagedError, err error) {
	hashes, damage, err := readHashes(fsys, first)
	if err != nil || damage != nil {
		return nil, damage, err
	}
	data, err := readFile(fsys, KeptName(first), MaxSegment)
	if err != nil {
		return nil, nil, err
	}
	lines, damage = keptLines(first, data, hashes)
	return lines, damage, nil
}

// keptLines splits a file of kept events into lines. The hashes are those of the dropped segment, which begins with the event
// first.
func keptLines(first int64, data []byte, hashes []tlog.Hash) (lines [][]byte, damage *DamagedError) {
	before := first - 1
	for line := range bytes.Lines(data) {
		line, complete := bytes.CutSuffix(line, []byte("\n"))
		d := &DamagedError{File: KeptName(first), Line: len(lines) + 1, Seq: -1}
		seq, err := seqIn(line)
		switch {
		case err != nil || !complete:
			d.What = "not an event"
			return lines, d
		case seq <= before || seq-first >= int64(len(hashes)):
			d.Seq, d.What = seq, fmt.Sprintf("event %d does not belong here", seq)
			return lines, d
		case tlog.RecordHash(line) != hashes[seq-first]:
			d.Seq, d.What = seq, "it is not the event whose hash the ledger has: it was changed"
			return lines, d
		}
		lines, before = append(lines, line), seq
	}
	return lines, nil
}

func seqIn(line []byte) (int64, error) {
	var l chainLink
	if err := json.Unmarshal(line, &l); err != nil || l.Seq == nil {
		return 0, errors.Join(err, errors.New("not an event"))
	}
	return *l.Seq, nil
}

// readKept checks the kept events of a dropped segment against the hashes in the part.
func (p *part) readKept(fsys fs.FS) error {
	data, err := readFile(fsys, KeptName(p.first), MaxSegment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // none stay
	}
	if err != nil {
		return err
	}
	lines, damage := keptLines(p.first, data, p.leaves)
	p.kept = int64(len(lines))
	if p.damage == nil {
		p.damage = damage
	}
	return nil
}

// names returns the names of the files with events, in the order of the events.
func (f *files) names() []string {
	names := make([]string, 0, len(f.segments)+len(f.kept))
	kept := f.kept
	for _, first := range f.segments {
		for len(kept) > 0 && kept[0] < first {
			names, kept = append(names, KeptName(kept[0])), kept[1:]
		}
		names = append(names, SegmentName(first))
	}
	for _, first := range kept {
		names = append(names, KeptName(first))
	}
	return names
}

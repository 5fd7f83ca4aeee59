package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"
)

// part is a segment, or the hashes of a dropped one, as far as it is sound.
type part struct {
	name     string
	first    int64
	isHashes bool
	// before is the chain by a segment's own header; nil for hashes, and where the
	// header is damaged.
	before   *Chain
	leaves   []tlog.Hash
	signed   string
	torn     []byte
	tornLine int
	damage   *DamagedError
}

// rereads is how often a ledger that is being written is read again: a write
// takes microseconds, and the removal of a segment too.
const rereads = 4

// readParts reads and checks all files of a ledger, so many at a time; 0 for one on each
// processor.
func readParts(ctx context.Context, fsys fs.FS, v note.Verifier, parallel int) (parts []part, err error) {
	for range rereads {
		var f files
		if f, err = listFiles(fsys); err != nil {
			return nil, err
		}
		if parts, err = f.read(ctx, fsys, v, cmp.Or(parallel, runtime.GOMAXPROCS(0))); !errors.Is(err, fs.ErrNotExist) {
			return parts, err
		}
	}
	return nil, err
}

func (f *files) read(ctx context.Context, fsys fs.FS, v note.Verifier, parallel int) ([]part, error) {
	parts := make([]part, len(f.hashes)+len(f.segments))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, first := range f.hashes {
		parts[i] = part{name: HashesName(first), first: first, isHashes: true}
	}
	for i, first := range f.segments {
		parts[len(f.hashes)+i] = part{name: SegmentName(first), first: first}
	}
	for i := range parts {
		g.Go(func() error {
			if ctx.Err() != nil {
				return fmt.Errorf("read ledger: %w", context.Cause(ctx))
			}
			return parts[i].read(fsys, v)
		})
	}
	err := g.Wait()
	slices.SortFunc(parts, func(a, b part) int { return int(a.first - b.first) })
	return parts, err
}

func (p *part) read(fsys fs.FS, v note.Verifier) (err error) {
	if p.isHashes {
		p.leaves, p.damage, err = readHashes(fsys, p.first)
		return err
	}
	var s *Segment
	for range rereads {
		data, err := readFile(fsys, p.name, MaxSegment)
		if err != nil {
			return err
		}
		if s = CheckSegment(p.name, data, v); len(s.Torn) == 0 {
			break
		}
	}
	if s.Good > 0 {
		p.before = new(s.Before)
	}
	p.leaves, p.signed, p.torn, p.damage = s.leaves(), s.Signed, s.Torn, s.Damage
	p.tornLine = s.nextLine()
	return nil
}

// nextLine is the number of the line behind the last good one.
func (s *Segment) nextLine() int {
	if len(s.Lines) == 0 {
		return 2
	}
	return s.Lines[len(s.Lines)-1] + 2
}

package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"
)

// Names of the files of a ledger's directory. Segments and hashes are named by
// the Seq of their first event, in sixteen digits.
const (
	// PublicKeyFile contains the node's public key, which verifies signatures, in the text format of package note.
	PublicKeyFile = "key.pub"
	// PrivateKeyFile contains the node's private key, which signs checkpoints. Readers don't need it.
	PrivateKeyFile = "key"
	// PseudonymsFile contains the key of the [Pseudonyms]. It is missing if pseudonyms were never enabled.
	PseudonymsFile = "pseudonyms.key"

	segmentSuffix = ".jsonl"
	hashesSuffix  = ".hashes"
	keptSuffix    = ".kept.jsonl"
)

// SegmentName returns the name of the segment that begins with the event.
func SegmentName(first int64) string { return fmt.Sprintf("%016d%s", first, segmentSuffix) }

// HashesName returns the name of the file that keeps the leaf hashes, 32 bytes
// each, of the events of a segment that was dropped.
func HashesName(first int64) string { return fmt.Sprintf("%016d%s", first, hashesSuffix) }

var namePattern = regexp.MustCompile(`^([0-9]{16})(\.jsonl|\.kept\.jsonl|\.hashes)$`)

// parseFirst splits the name of a file of events or hashes into the number of its first event and its suffix. For other names, ok is false.
func parseFirst(name string) (first int64, suffix string, ok bool) {
	m := namePattern.FindStringSubmatch(name)
	if m == nil {
		return 0, "", false
	}
	first, err := strconv.ParseInt(m[1], 10, 64)
	return first, m[2], err == nil
}

// FirstSeq returns the number in the name of a file of events or hashes: that of the first event of its segment.
func FirstSeq(name string) int64 {
	first, _, _ := parseFirst(name)
	return first
}

// IsSegment reports whether a file's name is that of a segment.
func IsSegment(name string) bool {
	_, suffix, ok := parseFirst(name)
	return ok && suffix == segmentSuffix
}

// IsHashes reports whether a file's name is that of a dropped segment's hashes.
func IsHashes(name string) bool {
	_, suffix, ok := parseFirst(name)
	return ok && suffix == hashesSuffix
}

// Hashes returns the name and the content of the file of hashes that replaces a segment whose events are left out, as retention
// writes it. It does not verify the segment: if the segment is damaged, the hashes don't match the header of the next segment, and
// [Verify] reports that.
func Hashes(name string, data []byte) (string, []byte) {
	var hashes []byte
	_, body, _ := bytes.Cut(data, []byte("\n"))
	for line := range bytes.Lines(body) {
		if line, complete := bytes.CutSuffix(line, []byte("\n")); complete && !IsMark(line) {
			leaf := tlog.RecordHash(line)
			hashes = append(hashes, leaf[:]...)
		}
	}
	first, _, _ := parseFirst(name)
	return HashesName(first), hashes
}

// MaxSegment is the size limit of a segment in bytes. Writers begin a new segment long before.
const MaxSegment = 256 << 20

// Segment is one file of a ledger, checked up to its first damage.
type Segment struct {
	Name string
	// Before is the chain before the segment. End is the chain after the segment's last valid write, which ends at offset Good.
	Before, End Chain
	Good        int64
	// Signed is the signed note of End.
	Signed string
	// Events are the lines of the valid events, from event Before.Size on. Lines are their line numbers.
	Events [][]byte
	Lines  []int
	// Torn is the data after Good if it is a write that was cut off.
	Torn []byte
	// Damage is set if the data after Good is neither valid nor torn.
	Damage *DamagedError
}

// CheckSegment reads a segment's data, and verifies it with the key up to the first problem. The data after the last valid write is
// a write that was cut off if it has no valid checkpoint, and if either all of its complete lines are valid events or it contains
// zeros, which file systems return for blocks that never reached the disk.
func CheckSegment(name string, data []byte, v note.Verifier) *Segment {
	s := &Segment{Name: name}
	head, body, complete := bytes.Cut(data, []byte("\n"))
	var err error
	if s.Before, s.Signed, err = openHeader(head, v); err != nil || !complete {
		s.Damage = &DamagedError{File: name, Line: 1, Seq: -1, What: fmt.Sprintf("%v", orCut(err))}
		return s
	}
	// The signature covers the header and not the name, so a segment could be renamed into the place of another one.
	if name != SegmentName(s.Before.Size) {
		s.Damage = &DamagedError{File: name, Line: 1, Seq: s.Before.Size, What: fmt.Sprintf("it is the segment of event %d under another name", s.Before.Size)}
		return s
	}
	s.End, s.Good = s.Before, int64(len(head)+1)
	w := &walk{s: s, v: v, chain: s.Before, line: 1, offset: s.Good}
	damage := w.run(body)
	if rest := data[s.Good:]; len(rest) > 0 {
		s.judge(rest, damage, v)
	}
	return s
}

// errCut says that a header is incomplete.
var errCut = errors.New("header: it is cut off")

func orCut(err error) error {
	if err == nil {
		return errCut
	}
	return err
}

// CheckEnd is [CheckSegment] at a tenth of the cost, for a writer that appends: it verifies only the signatures of the header and of
// the last checkpoint, which covers all events. If it finds a problem, it runs CheckSegment.
func CheckEnd(name string, data []byte, v note.Verifier) *Segment {
	s := CheckSegment(name, data, unsigned{v})
	head, _, _ := bytes.Cut(data, []byte("\n"))
	_, _, first := openHeader(head, v)
	_, last := openOwn(s.Signed, v)
	if s.Damage != nil || len(s.Torn) > 0 || first != nil || last != nil {
		return CheckSegment(name, data, v)
	}
	return s
}

// unsigned accepts any signature.
type unsigned struct{ note.Verifier }

func (unsigned) Verify([]byte, []byte) bool { return true }

// judge decides whether the data after the last valid write is torn or damaged. damage is its first invalid line, nil if all of its
// complete lines are valid.
func (s *Segment) judge(rest []byte, damage *DamagedError, v note.Verifier) {
	// After a crash, a file can be longer than the data that reached the disk. The file system then returns zeros for
	// the rest.
	torn := (damage == nil || bytes.IndexByte(rest, 0) >= 0) && !hasMark(rest, v)
	if torn {
		s.Torn = rest
		return
	}
	if damage == nil {
		damage = &DamagedError{File: s.Name, Seq: s.End.Size, Offset: s.Good, What: "the checkpoint of these events is missing"}
	}
	s.Damage = damage
}

// hasMark reports whether a complete line of the rest is, or ends in, a valid checkpoint. If so, everything before this checkpoint
// was once written completely.
func hasMark(rest []byte, v note.Verifier) bool {
	whole := rest[:bytes.LastIndexByte(rest, '\n')+1]
	for line := range bytes.Lines(whole) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if i := bytes.Index(line, []byte(markPrefix)); i >= 0 {
			if _, err := openMark(line[i:], v); err == nil {
				return true
			}
		}
	}
	return false
}

// walk reads the lines after a header.
type walk struct {
	s      *Segment
	v      note.Verifier
	chain  Chain
	line   int
	offset int64
	// events and lines belong to the write whose checkpoint has not been read yet. more is set if the last of these events announces
	// another one.
	events [][]byte
	lines  []int
	more   bool
}

// run reads lines up to the first damage. It returns nil if the rest is only incomplete.
func (w *walk) run(body []byte) *DamagedError {
	for len(body) > 0 {
		line, rest, complete := bytes.Cut(body, []byte("\n"))
		if !complete {
			return nil
		}
		w.line++
		if err := w.take(line); err != nil {
			return &DamagedError{File: w.s.Name, Line: w.line, Offset: w.offset, Seq: w.seq(line), What: err.Error()}
		}
		w.offset += int64(len(line) + 1)
		if IsMark(line) {
			w.complete(line)
		}
		body = rest
	}
	return nil
}

// seq returns the number of the event in a line. For the line of a checkpoint, it is the number of the first event of that write.
func (w *walk) seq(line []byte) int64 {
	if IsMark(line) {
		return w.chain.Size - int64(len(w.events))
	}
	return w.chain.Size
}

func (w *walk) take(line []byte) (err error) {
	if IsMark(line) {
		at, err := openMark(line, w.v)
		if err != nil {
			return err
		}
		return w.agrees(at)
	}
	if len(w.events) > 0 && !w.more {
		return errors.New("the checkpoint of the events before it is missing")
	}
	if w.chain, w.more, err = w.chain.follow(line); err != nil {
		return err
	}
	w.events, w.lines = append(w.events, line), append(w.lines, w.line)
	return nil
}

// agrees checks that a checkpoint matches the events before it.
func (w *walk) agrees(at Checkpoint) error {
	switch {
	case at.Size != w.chain.Size:
		return fmt.Errorf("checkpoint of size %d is after event %d", at.Size, w.chain.Size)
	case at.Root != w.chain.Root():
		return fmt.Errorf("these events are not the ones that were signed: one of the last %d was changed", len(w.events))
	case w.more:
		return errors.New("checkpoint is in the middle of a write")
	case len(w.events) == 0:
		return fmt.Errorf("checkpoint of size %d is here twice", at.Size)
	}
	return nil
}

// complete ends a write with the line of its checkpoint.
func (w *walk) complete(line []byte) {
	var m mark
	_ = exactly(line, &m) // take has decoded it already
	w.s.Events, w.s.Lines = append(w.s.Events, w.events...), append(w.s.Lines, w.lines...)
	w.s.End, w.s.Good, w.s.Signed = w.chain, w.offset, m.Checkpoint
	w.events, w.lines = nil, nil
}

// leaves returns the leaf hashes of the segment's events.
func (s *Segment) leaves() []tlog.Hash {
	hashes := make([]tlog.Hash, len(s.Events))
	for i, line := range s.Events {
		hashes[i] = tlog.RecordHash(line)
	}
	return hashes
}

// part is a segment, or the hashes of a dropped segment, checked up to the first damage.
type part struct {
	name     string
	first    int64
	isHashes bool
	// before is the chain of the segment's header; nil for hashes, and for a damaged header.
	before *Chain
	leaves []tlog.Hash
	// kept is the number of events that retention kept of a dropped segment.
	kept     int64
	signed   string
	torn     []byte
	tornLine int
	damage   *DamagedError
}

// rereads is the number of attempts to read a ledger or a file that changes during the read. A write takes microseconds, and so
// does removing a segment.
const rereads = 4

// readParts reads and checks all files of a ledger. It reads up to parallel files at once, or one for each processor if parallel is 0.
func readParts(ctx context.Context, fsys fs.FS, v note.Verifier, parallel int) (parts []part, err error) {
	for range rereads {
		var f files
		if f, err = listFiles(fsys); err != nil {
			return nil, err
		}
		// Retention can remove a segment after it was listed. The next list has its hashes instead.
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
		if p.leaves, p.damage, err = readHashes(fsys, p.first); err != nil {
			return err
		}
		return p.readKept(fsys)
	}
	var s *Segment
	for range rereads {
		data, err := readFile(fsys, p.name, MaxSegment)
		if err != nil {
			return err
		}
		// A torn end can be a write in progress, so it counts only if later reads find it too.
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

// nextLine returns the number of the line after the last valid one.
func (s *Segment) nextLine() int {
	if len(s.Lines) == 0 {
		// Line 1 is the header.
		return 2
	}
	// The line after the last event is its checkpoint.
	return s.Lines[len(s.Lines)-1] + 2
}

package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// Kind is the kind of a fault of the ledger, one of the codes that `kata-vfio-audit explain` knows. Kinds are stable for machines.
type Kind string

// Kinds of problems.
const (
	// Damaged: bytes differ from those that were written.
	Damaged Kind = "Damaged"
	// Missing: a file with events, or with the hashes of dropped ones, does not exist.
	Missing Kind = "Missing"
	// Unfinished: a partial write follows the last complete one. With its next write, the plugin moves it to a file of its own,
	// and records an event.
	Unfinished Kind = "Unfinished"
	// ForeignKey: another key signed the ledger, or an anchor.
	ForeignKey Kind = "ForeignKey"
	// Truncated: an anchor covers more events than the ledger has: events were cut off, or an older copy was restored.
	Truncated Kind = "Truncated"
	// Rewritten: an anchor covers other events than the ledger has.
	Rewritten Kind = "Rewritten"
	// NoAnchor: none of the given anchors belongs to this ledger.
	NoAnchor Kind = "NoAnchor"
)

// Problem is one thing that is wrong, and where.
type Problem struct {
	Kind Kind `json:"kind"`
	// File and Line say where, if that is known. Seq is the event, -1 for none.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Seq  int64  `json:"seq"`
	What string `json:"what"`
}

// Report is what [Verify] found.
type Report struct {
	Origin string `json:"origin"`
	// Key is the key that verified everything.
	Key string `json:"key"`
	// Size is the number of proven events, from the first one. Signed is their signed checkpoint, empty if there is none.
	Size   int64  `json:"size"`
	Signed string `json:"signed,omitempty"`
	// Dropped counts the events of which retention left only the hashes.
	Dropped  int64 `json:"dropped"`
	Segments int   `json:"segments"`
	// Anchored is the size of the largest anchor that matches, 0 without an anchor. Later events can be cut off, or rewritten
	// with the key, without a trace.
	Anchored int64 `json:"anchored"`
	// Anchors counts the anchors of this ledger, Others those of other ledgers.
	Anchors int `json:"anchors"`
	Others  int `json:"otherAnchors"`
	// LeftOut counts the foreign anchors ([Anchor.Foreign]) that name this ledger and are not signed by its key. They prove nothing
	// about the ledger. LeftOutFrom names the first places where they were found.
	LeftOut     int       `json:"leftOutAnchors"`
	LeftOutFrom []string  `json:"leftOutFrom,omitempty"`
	Problems    []Problem `json:"problems"`
}

// maxLeftOutFrom is the largest number of places in [Report.LeftOutFrom].
const maxLeftOutFrom = 8

// OK reports whether there is no problem.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Options are what a ledger is verified against.
type Options struct {
	// Key is the node's public key from a trusted source. If it is empty, the key beside the ledger is used, which an attacker may
	// have replaced together with all signatures.
	Key string
	// Anchors are checkpoints that were kept off the node.
	Anchors []Anchor
	// Witness is evidence that a ledger existed, as a clause: "the plugin's journal is there". With it, a missing ledger counts as
	// deleted.
	Witness string
	// Parallel is how many files are read at once, each completely into memory. 0 means the number of processors.
	Parallel int
}

// Verify reads a whole ledger and reports all its problems: bytes, lines or files that were changed, reordered or removed, and
// signatures by another key. Only with anchors can it report a ledger that was cut off, rewritten or restored from a backup.
//
// A ledger without events counts as deleted if an anchor, another file of the ledger or the witness shows that it existed.
//
// The error says that the ledger could not be read. It matches [ErrNone] if nothing shows that a ledger existed, and [ErrNoKey] if
// there is no key to verify the ledger with.
func Verify(fsys fs.FS, o Options) (*Report, error) {
	return VerifyContext(context.Background(), fsys, o)
}

// VerifyContext is [Verify] with a context. If ctx ends, the error wraps its cause.
func VerifyContext(ctx context.Context, fsys fs.FS, o Options) (*Report, error) {
	if _, err := listFiles(fsys); errors.Is(err, ErrNone) {
		return verifyGone(fsys, o)
	}
	v, err := newVerifier(fsys, o.Key)
	if err != nil {
		return nil, err
	}
	c := &check{r: &Report{Origin: v.Name(), Key: o.Key, Problems: []Problem{}}, v: v, roots: map[int64][]Anchor{}}
	if err := c.keys(fsys); err != nil {
		return nil, err
	}
	c.anchors(o.Anchors)
	parts, err := readParts(ctx, fsys, v, o.Parallel)
	if err != nil {
		return nil, err
	}
	for i := range parts {
		c.part(&parts[i], i == len(parts)-1)
	}
	c.end()
	return c.r, nil
}

// check is one verification under way.
type check struct {
	r *Report
	v note.Verifier
	// chain is the state after the parts that were checked so far. broken is set if one of them is missing or damaged, so that chain
	// is not proven from the first event on.
	chain  Chain
	broken bool
	// roots are the anchors that are not compared yet, by their size.
	roots map[int64][]Anchor
}

func (c *check) problem(p Problem) { c.r.Problems = append(c.r.Problems, p) }

// keys compares the key beside the ledger with the key of the options.
func (c *check) keys(fsys fs.FS) error {
	beside, err := readFile(fsys, PublicKeyFile, 1024)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.problem(Problem{Kind: Missing, File: PublicKeyFile, Seq: -1, What: "the public key is missing"})
		return nil
	case err != nil:
		return err
	case c.r.Key == "":
		c.r.Key = string(trimNewline(beside))
	}
	if string(beside) != c.r.Key+"\n" {
		c.problem(Problem{Kind: ForeignKey, File: PublicKeyFile, Line: 1, Seq: -1, What: "it is not the key that verifies the ledger"})
	}
	return nil
}

func trimNewline(data []byte) []byte {
	if n := len(data); n > 0 && data[n-1] == '\n' {
		return data[:n-1]
	}
	return data
}

// anchors keeps the anchors of this ledger whose signature is valid.
func (c *check) anchors(all []Anchor) {
	for _, a := range all {
		if a.Origin != c.r.Origin {
			c.r.Others++
			continue
		}
		_, err := OpenCheckpoint(a.Signed, c.v)
		// Anybody can write a text that looks like an anchor, which must not accuse the node.
		if err != nil && a.Foreign {
			c.leaveOut(a)
			continue
		}
		c.r.Anchors++
		if err != nil {
			c.problem(Problem{Kind: ForeignKey, Seq: a.Size - 1, What: fmt.Sprintf(
				"the ledger's key did not sign an anchor of size %d: the anchor is another node's, or the ledger was signed again with another key", a.Size)})
			continue
		}
		c.roots[a.Size] = append(c.roots[a.Size], a)
	}
	if n := len(trusted(all)); n > 0 && c.r.Anchors == 0 {
		c.problem(Problem{Kind: NoAnchor, Seq: -1, What: fmt.Sprintf("none of the anchors that were given (%d) belongs to %s", n, c.r.Origin)})
	}
}

// trusted returns the anchors that only the node and the admin can have written.
func trusted(all []Anchor) []Anchor {
	return slices.DeleteFunc(slices.Clone(all), func(a Anchor) bool { return a.Foreign })
}

// leaveOut counts a foreign anchor that the ledger's key did not sign. It is not a problem of the ledger: otherwise, a tenant could
// accuse any node's ledger with one line of text.
func (c *check) leaveOut(a Anchor) {
	c.r.LeftOut++
	if len(c.r.LeftOutFrom) < maxLeftOutFrom && !slices.Contains(c.r.LeftOutFrom, a.From) {
		c.r.LeftOutFrom = append(c.r.LeftOutFrom, a.From)
	}
}

// part checks that a part follows the parts before it, and adds its events.
func (c *check) part(p *part, last bool) {
	if p.before != nil || p.isHashes {
		c.follows(p)
	}
	c.compare()
	for _, leaf := range p.leaves {
		c.chain = c.chain.Extend(leaf)
		c.compare()
	}
	switch {
	case p.damage != nil:
		c.damaged(p.damage)
	case len(p.torn) > 0 && last:
		c.problem(Problem{Kind: Unfinished, File: p.name, Line: p.tornLine, Seq: c.chain.Size, What: fmt.Sprintf(
			"%d bytes follow the last complete write: the write was cut off there, or the bytes after it were", len(p.torn))})
	case len(p.torn) > 0:
		c.damaged(&DamagedError{File: p.name, Line: p.tornLine, Seq: c.chain.Size, What: "it ends in the middle of a write, and another segment follows"})
	}
	if p.isHashes {
		c.r.Dropped += int64(len(p.leaves)) - p.kept
		return
	}
	c.r.Segments++
	if !c.broken {
		c.r.Signed = p.signed
	}
}

func (c *check) damaged(d *DamagedError) {
	c.problem(Problem{Kind: Damaged, File: d.File, Line: d.Line, Seq: d.Seq, What: d.What})
	c.stop()
}

// stop ends the sequence of proven events. Later parts are checked each by itself.
func (c *check) stop() {
	if !c.broken {
		c.r.Size = c.chain.Size
	}
	c.broken = true
}

// follows checks that a part continues the chain. If it does not, the chain continues from the part's own header.
func (c *check) follows(p *part) {
	first := p.first
	switch {
	case p.isHashes && first == c.chain.Size:
		return // hashes have no header: the header of the next segment proves them
	case !p.isHashes && p.before.equal(c.chain):
		return
	case first > c.chain.Size && !c.broken:
		c.problem(Problem{Kind: Missing, File: p.name, Line: 1, Seq: c.chain.Size, What: fmt.Sprintf(
			"events %d to %d are missing: the file begins with event %d", c.chain.Size, first-1, first)})
	case !c.broken:
		c.problem(Problem{Kind: Damaged, File: p.name, Line: 1, Seq: first, What: "it does not follow the events before it: the ledger had other events when this segment began"})
	}
	c.stop()
	if p.isHashes {
		p.leaves = nil // nothing says which events they belong to
		return
	}
	c.chain = *p.before
}

// compare compares the chain with the anchors of its size. After damage, the chain comes from a segment's signed header, which is
// as reliable.
func (c *check) compare() {
	anchors, ok := c.roots[c.chain.Size]
	if !ok {
		return
	}
	delete(c.roots, c.chain.Size)
	root := c.chain.Root()
	for _, a := range anchors {
		if a.Root != root {
			c.problem(Problem{Kind: Rewritten, Seq: a.Size - 1, What: fmt.Sprintf(
				"an anchor of size %d shows that events before it were different: they were rewritten after the anchor was made", a.Size)})
			continue
		}
		c.r.Anchored = max(c.r.Anchored, a.Size)
	}
}

// end reports how many events are proven, and the anchors that no event reached.
func (c *check) end() {
	if c.r.Segments == 0 {
		c.problem(Problem{Kind: Missing, Seq: c.chain.Size, What: "there are hashes of dropped events, and no segment that proves them"})
	}
	if !c.broken {
		c.r.Size = c.chain.Size
	}
	c.cutOff()
}

// cutOff reports the anchors of events that the ledger does not have.
func (c *check) cutOff() {
	var sizes []int64
	for size := range c.roots {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	for _, size := range sizes {
		if size > c.chain.Size {
			c.problem(Problem{Kind: Truncated, Seq: c.chain.Size, What: fmt.Sprintf(
				"an anchor has the size %d, and the ledger %d: the last events were cut off, or an older copy was restored", size, c.chain.Size)})
			continue
		}
		c.problem(Problem{Kind: Damaged, Seq: size - 1, What: fmt.Sprintf("an anchor of size %d can't be compared: events before it are missing or damaged", size)})
	}
}

// verifyGone reports a ledger without events with the evidence that one existed. Without evidence the error is [ErrNone].
func verifyGone(fsys fs.FS, o Options) (*Report, error) {
	left, err := leftovers(fsys)
	if err != nil {
		return nil, err
	}
	if len(left) == 0 && o.Witness == "" && !shown(fsys, o) {
		return nil, ErrNone
	}
	c := &check{r: &Report{Key: o.Key, Problems: []Problem{}}, roots: map[int64][]Anchor{}}
	if len(left) > 0 {
		c.gone(fmt.Sprintf("the events are missing, but other files of the ledger exist: %s", strings.Join(left, ", ")))
	}
	if o.Witness != "" {
		c.gone("there are no events, but " + o.Witness)
	}
	if c.v, err = newVerifier(fsys, o.Key); err != nil {
		c.strangers(trusted(o.Anchors))
		return c.r, nil
	}
	c.r.Origin = c.v.Name()
	if slices.Contains(left, PublicKeyFile) {
		if err := c.keys(fsys); err != nil {
			return nil, err
		}
	}
	c.anchors(o.Anchors)
	c.cutOff()
	return c.r, nil
}

// shown reports whether an anchor shows that a ledger existed: one that only the node and the admin can have written, or that the
// key signed.
func shown(fsys fs.FS, o Options) bool {
	if len(trusted(o.Anchors)) > 0 {
		return true
	}
	v, err := newVerifier(fsys, o.Key)
	return err == nil && slices.ContainsFunc(o.Anchors, func(a Anchor) bool {
		_, err := OpenCheckpoint(a.Signed, v)
		return err == nil
	})
}

func (c *check) gone(what string) { c.problem(Problem{Kind: Missing, Seq: 0, What: what}) }

// strangers reports a problem if anchors were given although no key proves which ledger they belong to.
func (c *check) strangers(all []Anchor) {
	if len(all) == 0 {
		return
	}
	c.r.Anchors = len(all)
	largest := slices.MaxFunc(all, func(a, b Anchor) int { return int(min(max(a.Size-b.Size, -1), 1)) })
	c.problem(Problem{Kind: Truncated, Seq: 0, What: fmt.Sprintf(
		"anchors were given (%d, one of size %d of %s), but there are no events and no key that proves their origin", len(all), largest.Size, largest.Origin)})
}

// leftovers returns the names of the ledger's files other than events.
func leftovers(fsys fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list ledger: %w", err)
	}
	var names []string
	for _, e := range entries {
		if slices.Contains([]string{PublicKeyFile, PrivateKeyFile, PseudonymsFile}, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

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

// Kind sorts what is wrong with a ledger. Kinds are stable for machines.
type Kind string

// Kinds of problems.
const (
	// Damaged: bytes are not what was written.
	Damaged Kind = "Damaged"
	// Missing: a file with events, or with the hashes of dropped ones, is gone.
	Missing Kind = "Missing"
	// Unfinished: behind the last complete write there is a part of one. The plugin
	// puts it aside when it appends the next time, and says so by an event.
	Unfinished Kind = "Unfinished"
	// ForeignKey: the ledger, or an anchor, is signed by another key than the one
	// it is verified by.
	ForeignKey Kind = "ForeignKey"
	// Truncated: an anchor is of more events than there are: some were cut off, or an older
	// copy was put back.
	Truncated Kind = "Truncated"
	// Rewritten: an anchor is of other events than those that are there.
	Rewritten Kind = "Rewritten"
	// NoAnchor: anchors were given, and none is of this ledger.
	NoAnchor Kind = "NoAnchor"
)

// Problem is one thing that is wrong, and where.
type Problem struct {
	Kind Kind `json:"kind"`
	// File and Line say where, where that is known; Seq is the event, -1 for none.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Seq  int64  `json:"seq"`
	What string `json:"what"`
}

// Report is what [Verify] found.
type Report struct {
	Origin string `json:"origin"`
	// Key is the key that all was verified by.
	Key string `json:"key"`
	// Size is the number of events that are proven, from the first on; Signed is
	// their checkpoint as it was signed, empty where there is none.
	Size   int64  `json:"size"`
	Signed string `json:"signed,omitempty"`
	// Dropped is how many of them are there by their hashes only, by retention.
	Dropped  int64 `json:"dropped"`
	Segments int   `json:"segments"`
	// Anchored is the size of the largest anchor that fits. Whatever comes after it could have been cut off, or
	// rewritten with the key, without a trace. 0 without an anchor.
	Anchored int64 `json:"anchored"`
	// Anchors counts those of this ledger, Others those of other ledgers.
	Anchors  int       `json:"anchors"`
	Others   int       `json:"otherAnchors"`
	Problems []Problem `json:"problems"`
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Options say against what a ledger is verified.
type Options struct {
	// Key is the node's public key as it is known from elsewhere. If it is empty, the key beside the ledger is
	// used, which an attacker may have replaced together with all signatures.
	Key string
	// Anchors are checkpoints that were kept off the node.
	Anchors []Anchor
	// Witness says what else knows of a ledger where none is, in words: "the plugin's journal is there".
	// Then it was deleted.
	Witness string
	// Parallel is how many files are read at once, each of which is in memory as a whole meanwhile; 0 means the
	// number of processors.
	Parallel int
}

// Verify reads a whole ledger and reports everything that is wrong with it: bytes, lines, files or their order
// that are not what was written, and signatures by another key. By the anchors it also reports a ledger that was
// cut off, rewritten, or restored from a backup, which can't be known without an anchor.
//
// A ledger without any event was deleted, if anything shows that it existed: an anchor, other files of it, the
// witness.
//
// Its error says that the ledger could not be read. It matches [ErrNone] if the ledger does not exist and nothing
// shows that it did, and [ErrNoKey] without a key to verify it by.
func Verify(fsys fs.FS, o Options) (*Report, error) {
	return VerifyContext(context.Background(), fsys, o)
}

// VerifyContext is Verify until ctx ends; its error wraps ctx's then.
func VerifyContext(ctx context.Context, fsys fs.FS, o Options) (*Report, error) {
	if _, err := listFiles(fsys); errors.Is(err, ErrNone) {
		return verifyGone(fsys, o)
	}
	v, err := verifierOf(fsys, o.Key)
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
	// chain is the ledger behind the parts so far. broken says that one of them
	// ended in damage, so that it is not.
	chain  Chain
	broken bool
	// roots are the anchors that wait for the chain to come to their size.
	roots map[int64][]Anchor
}

func (c *check) problem(p Problem) { c.r.Problems = append(c.r.Problems, p) }

// keys compares the key beside the ledger with the one that is known.
func (c *check) keys(fsys fs.FS) error {
	beside, err := readFile(fsys, PublicKeyFile, 1024)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.problem(Problem{Kind: Missing, File: PublicKeyFile, Seq: -1, What: "the public key is gone"})
		return nil
	case err != nil:
		return err
	case c.r.Key == "":
		c.r.Key = string(trimNewline(beside))
	}
	if string(beside) != c.r.Key+"\n" {
		c.problem(Problem{Kind: ForeignKey, File: PublicKeyFile, Line: 1, Seq: -1, What: "it is not the key that the ledger is verified by"})
	}
	return nil
}

func trimNewline(data []byte) []byte {
	if n := len(data); n > 0 && data[n-1] == '\n' {
		return data[:n-1]
	}
	return data
}

// anchors takes those of this ledger, by their signature.
func (c *check) anchors(all []Anchor) {
	for _, a := range all {
		if a.Origin != c.r.Origin {
			c.r.Others++
			continue
		}
		c.r.Anchors++
		if _, err := OpenCheckpoint(a.Signed, c.v); err != nil {
			c.problem(Problem{Kind: ForeignKey, Seq: a.Size - 1, What: fmt.Sprintf(
				"an anchor of size %d is not signed by this key: either it is no anchor of this node, or the ledger was signed anew with another key", a.Size)})
			continue
		}
		c.roots[a.Size] = append(c.roots[a.Size], a)
	}
	if len(all) > 0 && c.r.Anchors == 0 {
		c.problem(Problem{Kind: NoAnchor, Seq: -1, What: fmt.Sprintf("none of the %d anchors is of %s", len(all), c.r.Origin)})
	}
}

// part checks that a part follows the ones before, and takes its events.
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
			"%d bytes behind the last complete write: a write was cut off there, or what followed", len(p.torn))})
	case len(p.torn) > 0:
		c.damaged(&DamagedError{File: p.name, Line: p.tornLine, Seq: c.chain.Size, What: "it ends in the middle of a write, and another segment follows"})
	}
	if p.isHashes {
		c.r.Dropped += int64(len(p.leaves))
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

// stop ends what is proven: from here on parts are checked one by one.
func (c *check) stop() {
	if !c.broken {
		c.r.Size = c.chain.Size
	}
	c.broken = true
}

// follows checks the place of a part, and goes on from there.
func (c *check) follows(p *part) {
	first := p.first
	switch {
	case p.isHashes && first == c.chain.Size:
		return // hashes have no header of their own: the next segment's speaks for them
	case !p.isHashes && p.before.equal(c.chain):
		return
	case first > c.chain.Size && !c.broken:
		c.problem(Problem{Kind: Missing, File: p.name, Line: 1, Seq: c.chain.Size, What: fmt.Sprintf(
			"events %d to %d are gone: it begins with event %d", c.chain.Size, first-1, first)})
	case !c.broken:
		c.problem(Problem{Kind: Damaged, File: p.name, Line: 1, Seq: first, What: "it does not follow what lies before it: other events were there when it was begun"})
	}
	c.stop()
	if p.isHashes {
		p.leaves = nil // nothing says what they are of
		return
	}
	c.chain = *p.before
}

// compare compares the anchors of the chain's size with it. Behind damage,
// where the chain is a segment's own word by its signed header, it is as good.
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
				"an anchor says that the first %d events were others than these: they were rewritten after it was made", a.Size)})
			continue
		}
		c.r.Anchored = max(c.r.Anchored, a.Size)
	}
}

// end says how far the events are proven, and reports the anchors that none came up to.
func (c *check) end() {
	if c.r.Segments == 0 {
		c.problem(Problem{Kind: Missing, Seq: c.chain.Size, What: "there are hashes of dropped events, and no segment that vouches for them"})
	}
	if !c.broken {
		c.r.Size = c.chain.Size
	}
	c.cutOff()
}

// cutOff reports what anchors say of events that are not there.
func (c *check) cutOff() {
	var sizes []int64
	for size := range c.roots {
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	for _, size := range sizes {
		if size > c.chain.Size {
			c.problem(Problem{Kind: Truncated, Seq: c.chain.Size, What: fmt.Sprintf(
				"an anchor is of %d events, and there are %d: the last ones were cut off, or an older copy was put back", size, c.chain.Size)})
			continue
		}
		c.problem(Problem{Kind: Damaged, Seq: size - 1, What: fmt.Sprintf("an anchor of %d events can't be compared: these events are gone or damaged", size)})
	}
}

// verifyGone reports on a ledger without any event: [ErrNone] where nothing says that
// there ever was one, and otherwise what says so.
func verifyGone(fsys fs.FS, o Options) (*Report, error) {
	left, err := leftovers(fsys)
	if err != nil {
		return nil, err
	}
	if len(left) == 0 && len(o.Anchors) == 0 && o.Witness == "" {
		return nil, ErrNone
	}
	c := &check{r: &Report{Key: o.Key, Problems: []Problem{}}, roots: map[int64][]Anchor{}}
	if len(left) > 0 {
		c.gone(fmt.Sprintf("the events are gone, and other files of the ledger are there: %s", strings.Join(left, ", ")))
	}
	if o.Witness != "" {
		c.gone("there is no event, and " + o.Witness)
	}
	if c.v, err = verifierOf(fsys, o.Key); err != nil {
		c.strangers(o.Anchors)
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

func (c *check) gone(what string) { c.problem(Problem{Kind: Missing, Seq: 0, What: what}) }

// strangers takes anchors where no key says whose the ledger was.
func (c *check) strangers(all []Anchor) {
	if len(all) == 0 {
		return
	}
	c.r.Anchors = len(all)
	largest := slices.MaxFunc(all, func(a, b Anchor) int { return int(min(max(a.Size-b.Size, -1), 1)) })
	c.problem(Problem{Kind: Truncated, Seq: 0, What: fmt.Sprintf(
		"%d anchors were given, one of %d events of %s, and there is neither an event nor a key that says whose they were", len(all), largest.Size, largest.Origin)})
}

// leftovers are the names of the files that a ledger has beside its events.
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

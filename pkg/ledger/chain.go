package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Chain is the state of a ledger after a number of events: everything that appending the next event needs. The zero value is an
// empty ledger. Copies are independent.
type Chain struct {
	// Size is the number of events, and the next one's Seq.
	Size int64
	// Last is the leaf hash of the last event, the next event's Prev.
	Last tlog.Hash
	// frontier has the roots of the perfect subtrees, largest first: one for each set bit of Size (RFC 6962, section 2.1).
	frontier []tlog.Hash
}

// Extend returns the chain with one more event, given by its leaf hash.
func (c Chain) Extend(leaf tlog.Hash) Chain {
	frontier := slices.Clone(c.frontier)
	node := leaf
	// Each trailing one bit of the size stands for a complete subtree, which the new event merges into a larger one, like the carry of
	// a binary counter.
	for range bits.TrailingZeros64(^uint64(c.Size)) {
		last := len(frontier) - 1
		node, frontier = tlog.NodeHash(frontier[last], node), frontier[:last]
	}
	return Chain{Size: c.Size + 1, Last: leaf, frontier: append(frontier, node)}
}

// Root returns the tree's root hash.
func (c Chain) Root() tlog.Hash {
	if c.Size == 0 {
		empty, _ := tlog.TreeHash(0, nil) // which reads nothing
		return empty
	}
	last := len(c.frontier) - 1
	root := c.frontier[last]
	for _, left := range slices.Backward(c.frontier[:last]) {
		root = tlog.NodeHash(left, root)
	}
	return root
}

// Checkpoint returns the checkpoint of the chain's events.
func (c Chain) Checkpoint(origin string) Checkpoint {
	return Checkpoint{Origin: origin, Size: c.Size, Root: c.Root()}
}

// equal reports whether both chains have the same events.
func (c Chain) equal(o Chain) bool {
	return c.Size == o.Size && c.Last == o.Last && slices.Equal(c.frontier, o.frontier)
}

// fits reports whether the frontier has as many hashes as the size requires, and an empty chain has no last hash.
func (c Chain) fits() bool {
	return c.Size >= 0 && len(c.frontier) == bits.OnesCount64(uint64(c.Size)) && (c.Size > 0 || c.Last == tlog.Hash{})
}

// A segment is a file of lines: a header, then for each write its events and their checkpoint. A write is complete with its
// checkpoint.

// header is the first line of a segment: the signed state after the previous segment, so that each segment can be read and
// verified by itself.
type header struct {
	Version int `json:"v"`
	// Segment is the Seq of the first event of this file.
	Segment int64 `json:"segment"`
	// Last and Frontier are those of the [Chain]. The signature covers Frontier through its root. The first event, and the previous
	// segment, prove Last.
	Last     tlog.Hash   `json:"prev"`
	Frontier []tlog.Hash `json:"frontier"`
	// Checkpoint is the signed note of the previous events.
	Checkpoint string `json:"checkpoint"`
}

// mark is a line with a checkpoint.
type mark struct {
	Checkpoint string `json:"checkpoint"`
}

// HeaderLine returns the first line, with its newline, of the segment that continues a chain, and the signed note in it.
func HeaderLine(c Chain, s note.Signer) (line []byte, signed string, err error) {
	if signed, err = c.Checkpoint(s.Name()).Sign(s); err != nil {
		return nil, "", err
	}
	frontier := c.frontier
	if frontier == nil {
		frontier = []tlog.Hash{}
	}
	line, err = encodeLine(header{Version: Version, Segment: c.Size, Last: c.Last, Frontier: frontier, Checkpoint: signed})
	return line, signed, err
}

// MarkLine returns the line, with its newline, that completes a write with its signed checkpoint.
func MarkLine(signed string) ([]byte, error) { return encodeLine(mark{Checkpoint: signed}) }

func encodeLine(v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode line: %w", err)
	}
	return append(line, '\n'), nil
}

// exactly decodes a line in canonical form, as encodeLine encodes it, and refuses any other.
func exactly(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return err
	}
	// These lines are not among the hashed events, so only one form of them is accepted.
	again, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, line) {
		return errors.New("line is not in canonical form")
	}
	return nil
}

// markPrefix distinguishes the line of a checkpoint from that of an event.
const markPrefix = `{"checkpoint":`

// IsMark reports whether a line of a segment is the checkpoint that completes a write.
func IsMark(line []byte) bool { return bytes.HasPrefix(line, []byte(markPrefix)) }

// Complete returns a segment's data, or a part of it that begins with a line, up to the last checkpoint. The rest is a write in
// progress, or one that a power failure cut off. Complete does not verify the checkpoint.
func Complete(data []byte) []byte {
	end := bytes.LastIndexByte(data, '\n') + 1
	for end > 0 {
		begin := bytes.LastIndexByte(data[:end-1], '\n') + 1
		if IsMark(data[begin:end]) {
			break
		}
		end = begin
	}
	return data[:end]
}

// openHeader verifies a segment's first line, and returns the chain before the segment and its signed note.
func openHeader(line []byte, v note.Verifier) (Chain, string, error) {
	var h header
	if err := exactly(line, &h); err != nil {
		return Chain{}, "", fmt.Errorf("header: %w", err)
	}
	c := Chain{Size: h.Segment, Last: h.Last, frontier: h.Frontier}
	if h.Version < 1 || !c.fits() {
		return Chain{}, "", errors.New("header: the line is not a header")
	}
	if h.Version > Version {
		return Chain{}, "", fmt.Errorf("header: its version is %d; this program knows versions up to %d", h.Version, Version)
	}
	at, err := openOwn(h.Checkpoint, v)
	if err != nil {
		return Chain{}, "", fmt.Errorf("header: %w", err)
	}
	// A signed header makes its segment verifiable without the segments before it, which retention may have dropped.
	if at != c.Checkpoint(v.Name()) {
		return Chain{}, "", errors.New("header: its hashes do not match the signature")
	}
	return c, h.Checkpoint, nil
}

// openMark verifies a checkpoint's line.
func openMark(line []byte, v note.Verifier) (Checkpoint, error) {
	var m mark
	if err := exactly(line, &m); err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	return openOwn(m.Checkpoint, v)
}

// chainLink has the fields that chain an event to the previous one.
type chainLink struct {
	Version int        `json:"v"`
	Seq     *int64     `json:"seq"`
	Prev    *tlog.Hash `json:"prev"`
	More    bool       `json:"more"`
}

// follow checks that an event's line follows the chain. It returns the chain with the event, and whether another event of the same
// write follows.
func (c Chain) follow(line []byte) (with Chain, more bool, err error) {
	if len(line) > MaxLine {
		return c, false, fmt.Errorf("line of %d bytes is longer than the limit of %d", len(line), MaxLine)
	}
	var l chainLink
	if err := json.Unmarshal(line, &l); err != nil {
		return c, false, fmt.Errorf("not an event: %w", err)
	}
	switch {
	// Pointers distinguish a missing number from 0, the number of the first event.
	case l.Version < 1 || l.Seq == nil || l.Prev == nil:
		return c, false, errors.New("not an event")
	case *l.Seq != c.Size:
		return c, false, fmt.Errorf("event %d is at the position of event %d", *l.Seq, c.Size)
	case *l.Prev != c.Last:
		return c, false, fmt.Errorf("event %d does not follow the event before it: one of them was changed, or an event was inserted", *l.Seq)
	}
	return c.Extend(tlog.RecordHash(line)), l.More, nil
}

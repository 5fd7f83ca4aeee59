package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Proof is a small file that proves a fact about a ledger offline, without the ledger: that it has an event (Event is set), or that
// a later checkpoint belongs to the same history as an earlier one (Earlier is set).
type Proof struct {
	Version int `json:"v"`
	// Key is the node's public key. To check the proof, use the key from a trusted source.
	Key string `json:"key"`
	// Event is the event's line, proven byte for byte, and Seq its number.
	Event string `json:"event,omitempty"`
	Seq   int64  `json:"seq,omitempty"`
	// Earlier is the signed note of the earlier checkpoint. Checkpoint is the signed note of the ledger's last checkpoint when the
	// proof was made.
	Earlier    string `json:"earlier,omitempty"`
	Checkpoint string `json:"checkpoint"`
	// Hashes are the proof, as in RFC 6962, sections 2.1.1 and 2.1.2.
	Hashes []tlog.Hash `json:"hashes"`
}

// maxProof is the size limit of a proof: one event, and the hashes for a tree of any size.
const maxProof = 2*MaxLine + 1<<16

// tree has all hashes of a valid ledger.
type tree struct {
	key    string
	signed string
	size   int64
	hashes []tlog.Hash // in the order of tlog's storage
}

// readTree reads a valid ledger. A damaged ledger proves nothing, so readTree returns an error.
func readTree(fsys fs.FS) (*tree, error) {
	r, err := Verify(fsys, Options{})
	if err != nil {
		return nil, err
	}
	for _, p := range r.Problems {
		// The events before a torn write are complete and signed.
		if p.Kind != Unfinished {
			return nil, &DamagedError{File: p.File, Line: p.Line, Seq: p.Seq, What: p.What}
		}
	}
	v, err := newVerifier(fsys, r.Key)
	if err != nil {
		return nil, err
	}
	parts, err := readParts(context.Background(), fsys, v, 0)
	if err != nil {
		return nil, err
	}
	t := &tree{key: r.Key}
	for i := range parts {
		for _, leaf := range parts[i].leaves {
			stored, err := tlog.StoredHashesForRecordHash(t.size, leaf, t)
			if err != nil {
				return nil, fmt.Errorf("hash event %d: %w", t.size, err)
			}
			t.hashes = append(t.hashes, stored...)
			t.size++
		}
		t.signed = parts[i].signed
	}
	return t, nil
}

// ReadHashes implements [tlog.HashReader].
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		if x < 0 || x >= int64(len(t.hashes)) {
			return nil, fmt.Errorf("no hash %d", x)
		}
		list[i] = t.hashes[x]
	}
	return list, nil
}

// ProveEvent returns the proof that the ledger of the last checkpoint has an event. It returns an error for an event that retention
// dropped.
func ProveEvent(fsys fs.FS, seq int64) (*Proof, error) {
	proofs, err := ProveEvents(fsys, []int64{seq})
	if err != nil {
		return nil, err
	}
	return proofs[0], nil
}

// ProveEvents is [ProveEvent] for several events, in their order and with the same checkpoint. It reads the ledger once.
func ProveEvents(fsys fs.FS, seqs []int64) ([]*Proof, error) {
	t, err := readTree(fsys)
	if err != nil {
		return nil, err
	}
	for _, seq := range seqs {
		if seq < 0 || seq >= t.size {
			return nil, fmt.Errorf("there is no event %d: the ledger has %d", seq, t.size)
		}
	}
	lines, err := readLines(fsys, seqs)
	if err != nil {
		return nil, err
	}
	proofs := make([]*Proof, len(seqs))
	for i, seq := range seqs {
		hashes, err := tlog.ProveRecord(t.size, seq, t)
		if err != nil {
			return nil, fmt.Errorf("prove event %d: %w", seq, err)
		}
		proofs[i] = &Proof{Version: Version, Key: t.key, Event: lines[seq], Seq: seq, Checkpoint: t.signed, Hashes: hashes}
	}
	return proofs, nil
}

// readLines returns the lines of events.
func readLines(fsys fs.FS, seqs []int64) (map[int64]string, error) {
	wanted, lines := map[int64]bool{}, map[int64]string{}
	for _, seq := range seqs {
		wanted[seq] = true
	}
	for e, err := range Events(fsys) {
		if err != nil {
			return nil, err
		}
		if wanted[e.Event.Seq] {
			lines[e.Event.Seq] = string(e.Raw)
		}
	}
	for _, seq := range seqs {
		if lines[seq] == "" {
			return nil, fmt.Errorf("retention dropped event %d: only its hash is left", seq)
		}
	}
	return lines, nil
}

// ErrForeign says that an anchor does not belong to the ledger's history.
var ErrForeign = errors.New("the anchor does not belong to this ledger's history")

// ProveConsistency returns the proof that the ledger's last checkpoint belongs to the same history as an earlier one, which the same
// key must have signed.
func ProveConsistency(fsys fs.FS, earlier Anchor) (*Proof, error) {
	t, err := readTree(fsys)
	if err != nil {
		return nil, err
	}
	p := &Proof{Version: Version, Key: t.key, Earlier: earlier.Signed, Checkpoint: t.signed}
	if earlier.Size > t.size {
		return nil, fmt.Errorf("%w: it has the size %d, and the ledger %d: the last events were cut off, or an older copy was restored", ErrForeign, earlier.Size, t.size)
	}
	if earlier.Size > 0 {
		if p.Hashes, err = tlog.ProveTree(t.size, earlier.Size, t); err != nil {
			return nil, fmt.Errorf("prove consistency with size %d: %w", earlier.Size, err)
		}
	}
	// Hashes can be computed for any two sizes. Only the check compares the earlier root with this history.
	if _, err := p.Check(t.key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return p, nil
}

// Encode returns the content of the proof's file.
func (p *Proof) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode proof: %w", err)
	}
	return append(data, '\n'), nil
}

// DecodeProof reads a proof's file.
func DecodeProof(data []byte) (*Proof, error) {
	if len(data) > maxProof {
		return nil, fmt.Errorf("proof of %d bytes is larger than the limit of %d", len(data), maxProof)
	}
	var p Proof
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("not a proof: %w", err)
	}
	if p.Version != Version || (p.Event == "") == (p.Earlier == "") {
		return nil, errors.New("not a proof of this version")
	}
	return &p, nil
}

// Check verifies the proof with the node's public key, or, if key is empty, with the key that the proof names. It returns the
// checkpoint of the proof's result.
func (p *Proof) Check(key string) (Checkpoint, error) {
	if key == "" {
		key = p.Key
	}
	v, err := note.NewVerifier(key)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("key %.80q: %w", key, err)
	}
	c, err := OpenCheckpoint(p.Checkpoint, v)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	if p.Event != "" {
		return c, p.checkEvent(c)
	}
	return c, p.checkEarlier(c, v)
}

func (p *Proof) checkEvent(c Checkpoint) error {
	e, err := DecodeEvent([]byte(p.Event))
	if err != nil {
		return err
	}
	if e.Seq != p.Seq || p.Seq < 0 || p.Seq >= c.Size {
		return fmt.Errorf("event %d is not among the first %d", e.Seq, c.Size)
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Seq, tlog.RecordHash([]byte(p.Event))); err != nil {
		return fmt.Errorf("event %d is not in the ledger of the checkpoint: %w", p.Seq, err)
	}
	return nil
}

func (p *Proof) checkEarlier(c Checkpoint, v note.Verifier) error {
	earlier, err := OpenCheckpoint(p.Earlier, v)
	if err != nil {
		return fmt.Errorf("earlier checkpoint: %w", err)
	}
	// Each history begins with the empty tree, for which RFC 6962 (section 2.1.2) defines no consistency proof.
	if earlier.Size == 0 || earlier.Size > c.Size {
		if earlier.Size == 0 && earlier.Root == (Chain{}).Root() {
			return nil
		}
		return fmt.Errorf("the earlier checkpoint has the size %d, the later one %d", earlier.Size, c.Size)
	}
	if err := tlog.CheckTree(p.Hashes, c.Size, c.Root, earlier.Size, earlier.Root); err != nil {
		return fmt.Errorf("the checkpoints belong to different histories: %w", err)
	}
	return nil
}

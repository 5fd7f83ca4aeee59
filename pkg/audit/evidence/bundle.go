package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/history"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// PredicateType names what a bundle states, as in-toto attestations name it.
const PredicateType = "https://kata-vfio.dev/device-tenancy/v1"

// Bundle is evidence of tenancies that proves itself without the ledger: each
// event that they rest on, with the proof that it is in a ledger whose head the
// node's key has signed. It proves what it holds, not that nothing is left out;
// for that, verify the ledger.
type Bundle struct {
	Type string `json:"type"`
	// Question is what was asked.
	Question string `json:"question"`
	// Tenancies are what the events say; who checks makes them anew.
	Tenancies []*history.Tenancy `json:"tenancies"`
	// Proofs hold the events' lines, in order.
	Proofs []*ledger.Proof `json:"proofs"`
}

// NewBundle gathers the proofs of a document's tenancies from a ledger, which must
// be sound. Events that are not the tenancies' own but clean the function before
// them are among these.
func NewBundle(dir fs.FS, d *Document) (*Bundle, error) {
	b := &Bundle{Type: PredicateType, Question: d.Question}
	for _, seq := range eventsOf(d.Tenancies) {
		p, err := ledger.ProveEvent(dir, seq)
		if err != nil {
			return nil, fmt.Errorf("prove event %d: %w", seq, err)
		}
		b.Proofs = append(b.Proofs, p)
	}
	var err error
	b.Tenancies, err = b.replay()
	return b, err
}

func eventsOf(tenancies []*history.Tenancy) []int64 {
	var seqs []int64
	for _, t := range tenancies {
		seqs = append(seqs, t.Events...)
		if t.Before != nil {
			seqs = append(seqs, t.Before.Event)
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// replay makes tenancies of the bundle's events alone. What the events of others
// would add (that a function had an earlier tenant) is not theirs to say.
func (b *Bundle) replay() ([]*history.Tenancy, error) {
	h := &history.History{}
	for _, p := range b.Proofs {
		e, err := ledger.DecodeEvent([]byte(p.Event))
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", p.Seq, err)
		}
		if e.Seq != p.Seq {
			return nil, fmt.Errorf("event %d calls itself %d", p.Seq, e.Seq)
		}
		h.Add(e)
	}
	for _, t := range h.Tenancies {
		t.First = false
	}
	return h.Tenancies, nil
}

// maxBundle is the largest bundle that is read, in bytes.
const maxBundle = 64 << 20

// Verified is what a look at a bundle gave.
type Verified struct {
	Bundle *Bundle
	// Checkpoints are those that the proofs lead to, by size.
	Checkpoints []ledger.Checkpoint
	// Pinned is set where the key came from elsewhere than the bundle.
	Pinned bool
}

// VerifyBundle checks a bundle offline: each event's proof and signature, and
// that the tenancies are what the events say. key is the node's public key as it
// is known from elsewhere; empty for the bundle's own, which proves only that it
// fits together.
func VerifyBundle(data []byte, key string) (*Verified, error) {
	if len(data) > maxBundle {
		return nil, fmt.Errorf("a bundle of %d bytes; at most %d are read", len(data), maxBundle)
	}
	var b Bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("not a bundle: %w", err)
	}
	if b.Type != PredicateType {
		return nil, fmt.Errorf("not a bundle: its type is %.100q, want %q", b.Type, PredicateType)
	}
	if len(b.Proofs) == 0 {
		return nil, errors.New("the bundle has no events")
	}
	v := &Verified{Bundle: &b, Pinned: key != ""}
	for _, p := range b.Proofs {
		if p == nil || p.Event == "" {
			return nil, errors.New("not a bundle: a proof without an event")
		}
		by := key
		if by == "" {
			by = b.Proofs[0].Key
		}
		c, err := p.Check(by)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", p.Seq, err)
		}
		v.Checkpoints = append(v.Checkpoints, c)
	}
	return v, b.agrees()
}

// agrees makes the tenancies anew and compares.
func (b *Bundle) agrees() error {
	made, err := b.replay()
	if err != nil {
		return err
	}
	want, err := json.Marshal(made)
	if err != nil {
		return err
	}
	got, err := json.Marshal(b.Tenancies)
	if err != nil {
		return err
	}
	if !slices.Equal(want, got) {
		return errors.New("the tenancies are not what the events say")
	}
	return nil
}

// Encode returns the bundle as JSON.
func (b *Bundle) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode bundle: %w", err)
	}
	return append(data, '\n'), nil
}

// Standing says how far the bundle can be believed.
func (v *Verified) Standing() history.Standing {
	last := v.Bundle.Proofs[len(v.Bundle.Proofs)-1]
	s := history.Standing{Events: int64(len(v.Bundle.Proofs)), Sound: true, Checkpoint: ledger.OneLine(last.Checkpoint), Key: last.Key}
	if !v.Pinned {
		s.Doubts = append(s.Doubts, "it was verified by its own key, which proves only that it fits together (--key names one from elsewhere)")
	}
	s.Doubts = append(s.Doubts, "a bundle proves what it holds, not that nothing was left out of it")
	return s
}

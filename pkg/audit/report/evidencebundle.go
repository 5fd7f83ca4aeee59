package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// predicateType names the statement of a bundle, as in-toto attestations do.
const predicateType = "https://kata-vfio.dev/device-tenancy/v1"

// Bundle is evidence of tenancies that can be verified without the ledger. It has each event from which the tenancies are derived,
// with the proof that the event is in a ledger whose head the node's key has signed. It proves its content, but not that the
// content is complete. For that, verify the ledger.
type Bundle struct {
	Type string `json:"type"`
	// Question is the question that it answers.
	Question string `json:"question"`
	// Tenancies are the requested tenancies, derived from the events. [VerifyBundle] derives them again.
	Tenancies []*facts.PastTenancy `json:"tenancies"`
	// Neighbors are other tenants' tenancies at the same time, the nearest first, by the events too; NeighborsLeftOut counts the
	// neighbors beyond the limit of a bundle.
	Neighbors        []facts.Neighbor `json:"neighbours"`
	NeighborsLeftOut int              `json:"neighboursLeftOut,omitempty"`
	// Proofs hold the events' lines, in order.
	Proofs []*ledger.Proof `json:"proofs"`
}

// maxNear is the largest number of neighbors in a bundle. On a large node, a pod that runs for months has more than a person can read.
const maxNear = 500

// NewBundle gathers the proofs of a document's tenancies and of their neighbors from a ledger, which must be sound.
// They include the events that cleaned a function before a tenancy.
func NewBundle(dir fs.FS, d *Evidence) (*Bundle, error) {
	near := d.Neighbors[:min(len(d.Neighbors), maxNear)]
	listed := slices.Clone(d.Tenancies)
	for i := range near {
		listed = append(listed, near[i].Other)
	}
	b := &Bundle{Type: predicateType, Question: d.Question, NeighborsLeftOut: len(d.Neighbors) - len(near)}
	var err error
	if b.Proofs, err = ledger.ProveEvents(dir, listEvents(listed)); err != nil {
		return nil, fmt.Errorf("prove the events: %w", err)
	}
	// Verification derives the tenancies from these events alone, and would refuse a fact from another event.
	h, err := b.replay()
	if err != nil {
		return nil, err
	}
	b.Tenancies = list(pick(h.Tenancies, newKeys(d.Tenancies)))
	others := newKeys(listed[len(d.Tenancies):])
	b.Neighbors = list(slices.DeleteFunc(otherTenants(h.Neighbors(b.Tenancies)), func(n facts.Neighbor) bool { return !others[newKey(n.Other)] }))
	return b, nil
}

// key identifies a tenancy of a ledger: by the function, the claim, and the event that began it.
type key struct {
	device pci.Address
	claim  string
	began  int64
}

func newKey(t *facts.PastTenancy) key { return key{t.Device.Address, t.Claim.UID, t.Events[0]} }

func newKeys(tenancies []*facts.PastTenancy) map[key]bool {
	keys := map[key]bool{}
	for _, t := range tenancies {
		keys[newKey(t)] = true
	}
	return keys
}

func pick(made []*facts.PastTenancy, keys map[key]bool) []*facts.PastTenancy {
	var picked []*facts.PastTenancy
	for _, t := range made {
		if keys[newKey(t)] {
			picked = append(picked, t)
		}
	}
	return picked
}

func listEvents(tenancies []*facts.PastTenancy) []int64 {
	var seqs []int64
	for _, t := range tenancies {
		seqs = append(seqs, t.Events...)
		for i := range t.Quarantines {
			for _, o := range t.Quarantines[i].Orders {
				seqs = append(seqs, o.Event)
			}
		}
		if t.Before != nil {
			seqs = append(seqs, t.Before.Event)
		}
		if t.Sanitized != nil {
			seqs = append(seqs, t.Sanitized.Event)
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// replay derives tenancies from the bundle's events alone. It leaves out facts that need other events, such as
// whether a function had an earlier tenant.
func (b *Bundle) replay() (*facts.History, error) {
	h := &facts.History{}
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
		t.First, t.Partial = false, true
	}
	return h, nil
}

// maxBundle is the largest bundle that is written and read, in bytes.
const maxBundle = 64 << 20

// Verified is the result of [VerifyBundle].
type Verified struct {
	Bundle *Bundle
	// Checkpoints are the checkpoints of the proofs, by size.
	Checkpoints []ledger.Checkpoint
	// Pinned is set if the caller gave the key, so that it does not come from the bundle.
	Pinned bool
	// Unlisted counts other functions that the claims had by the same events. They were not asked for, or somebody removed them from the list.
	Unlisted int
}

// VerifyBundle checks a bundle offline: each event's proof and signature, and that the tenancies follow from the
// events. key is the node's public key from a trusted source. If it is empty, the bundle's own key is used, which
// proves only that the bundle is consistent.
func VerifyBundle(data []byte, key string) (*Verified, error) {
	if len(data) > maxBundle {
		return nil, fmt.Errorf("a bundle of %d bytes; at most %d are read", len(data), maxBundle)
	}
	var b Bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("not a bundle: %w", err)
	}
	if b.Type != predicateType {
		return nil, fmt.Errorf("not a bundle: its type is %.100q, want %q", b.Type, predicateType)
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
			// All proofs must be by one key, even if only the bundle names it.
			by = b.Proofs[0].Key
		}
		c, err := p.Check(by)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", p.Seq, err)
		}
		v.Checkpoints = append(v.Checkpoints, c)
	}
	return v, v.agrees()
}

// agrees derives the tenancies again. If they are the same as those in the bundle, it replaces the bundle's by the derived ones;
// otherwise it returns an error.
func (v *Verified) agrees() error {
	b := v.Bundle
	h, err := b.replay()
	if err != nil {
		return err
	}
	if b.Tenancies, err = among(h.Tenancies, b.Tenancies, claimedTenancy); err != nil {
		return fmt.Errorf("the tenancies are not what the events say: %w", err)
	}
	v.Unlisted = unlisted(h, b.Tenancies)
	if b.Neighbors, err = among(otherTenants(h.Neighbors(b.Tenancies)), b.Neighbors, claimedNeighbor); err != nil {
		return fmt.Errorf("who was near is not what the events say: %w", err)
	}
	return nil
}

// unlisted counts the tenancies of the listed ones' claims that are not listed.
func unlisted(h *facts.History, listed []*facts.PastTenancy) int {
	claims := map[string]bool{}
	for _, t := range listed {
		claims[t.Claim.UID] = true
	}
	// The loop below counts the listed ones too.
	n := -len(listed)
	for _, t := range h.Tenancies {
		if claims[t.Claim.UID] {
			n++
		}
	}
	return n
}

// claimedTenancy returns the parts of a tenancy that bundles of all versions have. Bundles of earlier versions have no quarantines.
// What a reader sees is always derived from the events.
func claimedTenancy(t *facts.PastTenancy) *facts.PastTenancy {
	if t == nil {
		return nil
	}
	compared := *t
	compared.Quarantines = nil
	return &compared
}

func claimedNeighbor(n facts.Neighbor) facts.Neighbor {
	n.Mine, n.Other = claimedTenancy(n.Mine), claimedTenancy(n.Other)
	return n
}

// among returns the derived items that are claimed. Each claimed item must have been derived unchanged, once and in this
// order; part returns what is compared of one.
func among[T any](made, claimed []T, part func(T) T) ([]T, error) {
	found := []T{}
	for _, one := range claimed {
		want, err := json.Marshal(part(one))
		if err != nil {
			return nil, err
		}
		for ; len(made) > 0; made = made[1:] {
			// The claimed item was decoded from JSON, so fields that JSON does not have must not count.
			if got, err := json.Marshal(part(made[0])); err == nil && bytes.Equal(got, want) {
				break
			}
		}
		if len(made) == 0 {
			return nil, fmt.Errorf("number %d of %d is not among them", len(found)+1, len(claimed))
		}
		found, made = append(found, made[0]), made[1:]
	}
	return found, nil
}

// Encode returns the bundle as JSON. The error says so if [VerifyBundle] would refuse the bundle for its size.
func (b *Bundle) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode bundle: %w", err)
	}
	if data = append(data, '\n'); len(data) > maxBundle {
		return nil, fmt.Errorf("encode bundle: %s with %s have %d MiB, and verifiers read at most %d MiB: ask about less, "+
			"such as one claim (--claim), the last tenancy of a function (--device) or a moment (--at)",
			output.Count(len(b.Tenancies), "tenancy", "tenancies"), output.Count(len(b.Proofs), "event"), len(data)>>20, maxBundle>>20)
	}
	return data, nil
}

// Document returns the bundle's answer as [Evidence], for people.
func (v *Verified) Document() *Evidence {
	d := &Evidence{Question: v.Bundle.Question, Tenancies: v.Bundle.Tenancies, Neighbors: v.Bundle.Neighbors, Ledger: v.Verification()}
	for _, t := range d.Tenancies {
		d.Node = t.Node
	}
	return d
}

// Verification says how far the bundle can be trusted.
func (v *Verified) Verification() facts.Verification {
	last := v.Bundle.Proofs[len(v.Bundle.Proofs)-1]
	s := facts.Verification{Events: int64(len(v.Bundle.Proofs)), Sound: true, Checkpoint: ledger.OneLine(last.Checkpoint), Key: last.Key}
	if !v.Pinned {
		s.Doubts = append(s.Doubts, "its own key verified it, which proves only that it is consistent (--key sets a key from a trusted source)")
	}
	if v.Unlisted > 0 {
		s.Doubts = append(s.Doubts, fmt.Sprintf("by the same events these claims had %s that the bundle does not list: not asked for, or taken off", output.Count(v.Unlisted, "more function")))
	}
	if n := v.Bundle.NeighborsLeftOut; n > 0 {
		s.Doubts = append(s.Doubts, fmt.Sprintf("%s of others, farther than these, not in the bundle: ask the ledger", output.Count(n, "more tenancy", "more tenancies")))
	}
	s.Doubts = append(s.Doubts, "a bundle proves what it holds, not that nothing was left out of it")
	return s
}

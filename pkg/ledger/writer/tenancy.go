package writer

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Tenancy returns the events of a claim from its last [ledger.Prepare] on, in
// order; none for a claim that the ledger has no such event of. It reads
// backwards from the end, as far as it must.
func (w *Writer) Tenancy(ctx context.Context, uid string) ([]ledger.Event, error) {
	all, err := w.Tenancies(ctx, []string{uid})
	return all[uid], err
}

// Tenancies is [Writer.Tenancy] of several claims, by UID. It reads the ledger once,
// however many there are.
func (w *Writer) Tenancies(ctx context.Context, uids []string) (map[string][]ledger.Event, error) {
	found, open := map[string][]ledger.Event{}, map[string]bool{}
	for _, uid := range uids {
		open[uid] = true
	}
	if len(open) == 0 {
		return found, nil
	}
	err := w.backwards(ctx, func(data []byte) bool {
		for uid, t := range tenanciesIn(data, open) {
			found[uid] = append(t.events, found[uid]...)
			if t.begun {
				delete(open, uid)
			}
		}
		return len(open) == 0
	})
	if err != nil {
		return nil, err
	}
	for uid := range open { // without a beginning
		delete(found, uid)
	}
	return found, nil
}

// tenancy is what one segment has of a claim's last one.
type tenancy struct {
	events []ledger.Event
	begun  bool
}

// tenanciesIn returns the events of claims in a segment's data, each from its last
// Prepare on where that is among them.
func tenanciesIn(data []byte, uids map[string]bool) map[string]*tenancy {
	all := map[string]*tenancy{}
	for line := range bytes.Lines(data) {
		if !uids[claimIn(line)] {
			continue
		}
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || e.Claim == nil || !uids[e.Claim.UID] {
			continue
		}
		t := all[e.Claim.UID]
		if t == nil {
			t = &tenancy{}
			all[e.Claim.UID] = t
		}
		if e.Type == ledger.Prepare {
			t.events, t.begun = nil, true
		}
		t.events = append(t.events, *e)
	}
	return all
}

// claimIn returns the UID of the claim in an event's line without decoding the rest,
// which takes a hundred times as long; "" for none. No text of a tenant is taken for
// it: quotes in it are escaped.
func claimIn(line []byte) string {
	_, rest, ok := bytes.Cut(line, []byte(`,"claim":{"uid":"`))
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 {
		return ""
	}
	if bytes.IndexByte(rest[:end], '\\') < 0 {
		return string(rest[:end])
	}
	var uid string
	_ = json.Unmarshal(append([]byte{'"'}, append(rest[:end:end], '"')...), &uid) // "" for what is none
	return uid
}

package writer

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Tenancy returns the events of a claim from its last [ledger.Prepare] on, in
// order; none for a claim that the ledger has no such event of. It reads
// backwards from the end, as far as it must, unless [Writer.Recall] has done so.
func (w *Writer) Tenancy(ctx context.Context, uid string) ([]ledger.Event, error) {
	if events, recalled, err := w.recalled(ctx, uid); recalled {
		return events, err
	}
	all, err := w.tenancies(ctx, []string{uid}, func(string, []byte) {})
	return all[uid], err
}

// tenancies is [Writer.Tenancy] of several claims, by UID. It reads the ledger once,
// however many there are, and shows each segment that it reads.
func (w *Writer) tenancies(ctx context.Context, uids []string, show func(name string, data []byte)) (map[string][]ledger.Event, error) {
	found, open := map[string][]ledger.Event{}, map[string]bool{}
	for _, uid := range uids {
		open[uid] = true
	}
	if len(open) == 0 {
		return found, nil
	}
	err := w.backwards(ctx, func(name string, data []byte) bool {
		data = ledger.Complete(data)
		show(name, data)
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
		if !isOf(line, uids) {
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

// claimWord stands before the UID of an event's claim. No text of a tenant is taken for
// it: quotes in it are escaped.
const claimWord = `,"claim":{"uid":"`

// isOf reports whether an event's line is of one of the claims, without decoding the
// rest, which takes a hundred times as long.
func isOf(line []byte, uids map[string]bool) bool {
	_, rest, ok := bytes.Cut(line, []byte(claimWord))
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 {
		return false
	}
	if bytes.IndexByte(rest[:end], '\\') < 0 {
		return uids[string(rest[:end])]
	}
	var uid string
	_ = json.Unmarshal(append([]byte{'"'}, append(rest[:end:end], '"')...), &uid) // "" for what is none
	return uids[uid]
}

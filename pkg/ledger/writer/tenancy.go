package writer

import (
	"bytes"
	"context"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Tenancy returns the events of a claim from its last [ledger.Prepare] on, in
// order; none for a claim that the ledger has no such event of. It reads
// backwards from the end, as far as it must.
func (w *Writer) Tenancy(ctx context.Context, uid string) ([]ledger.Event, error) {
	var found []ledger.Event
	begun := false
	err := w.backwards(ctx, func(data []byte) bool {
		var events []ledger.Event
		events, begun = tenancyIn(data, uid)
		found = append(events, found...)
		return begun
	})
	if err != nil || !begun {
		return nil, err
	}
	return found, nil
}

// tenancyIn returns the claim's events in a segment's data from its last Prepare
// on, and whether that is among them.
func tenancyIn(data []byte, uid string) (events []ledger.Event, begun bool) {
	word := fmt.Appendf(nil, "%q", uid)
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, word) {
			continue
		}
		e, err := ledger.DecodeEvent(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || e.Claim == nil || e.Claim.UID != uid {
			continue
		}
		if e.Type == ledger.Prepare {
			events, begun = nil, true
		}
		events = append(events, *e)
	}
	return events, begun
}

package check

import (
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// booksOf returns what the node keeps of who has its functions.
func booksOf(n *facts.Node) *finding.Books {
	b := &finding.Books{Claims: []finding.BookedClaim{}}
	for _, rec := range n.Records() {
		if !n.IsThisBoot(rec) {
			continue
		}
		ref := rec.Plan.Claim
		b.Claims = append(b.Claims, finding.BookedClaim{
			UID: ref.UID, Namespace: ref.Namespace, Name: ref.Name, State: string(rec.State), Since: rec.Since, Devices: rec.Plan.Addresses(),
		})
	}
	if r, _ := n.Ledger(); r != nil {
		b.Ledger = &finding.BookedLedger{Events: r.Size, Checkpoint: ledger.OneLine(r.Signed), Key: r.Key}
	}
	return b
}

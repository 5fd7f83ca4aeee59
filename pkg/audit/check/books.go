package check

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// nodeRecords returns what the node keeps of who has its functions.
func nodeRecords(n *facts.Node) *finding.NodeRecords {
	b := &finding.NodeRecords{Claims: []finding.ClaimRecord{}}
	for _, rec := range n.Records() {
		if !n.IsThisBoot(rec) {
			continue
		}
		ref := rec.Plan.Claim
		b.Claims = append(b.Claims, finding.ClaimRecord{
			UID: ref.UID, Namespace: ref.Namespace, Name: ref.Name, State: string(rec.State), Since: rec.Since, Devices: rec.Plan.Addresses(),
		})
	}
	if r, _ := n.Ledger(); r != nil {
		b.Ledger = &finding.LedgerRecord{Events: r.Size, Checkpoint: ledger.OneLine(r.Signed), Key: r.Key}
	}
	return b
}

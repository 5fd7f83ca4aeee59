package journal

import (
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Holdings returns which record holds a function, by address: records of the boot count,
// and quarantined ones of any boot. Where several hold a function, a claim's record wins
// over a standing binding's.
func Holdings(records []*Record, bootID string) map[pci.Address]plan.Owner {
	held := map[pci.Address]plan.Owner{}
	for _, rec := range records {
		if rec.BootID != bootID && rec.State != Quarantined {
			continue
		}
		h := plan.Owner{Claim: rec.Plan.Claim, Bound: rec.Kind == Bound}
		if rec.State == Quarantined {
			h.Quarantined = rec.Reason
		}
		for _, a := range rec.Plan.Addresses() {
			if have, ok := held[a]; !ok || have.Bound {
				held[a] = h
			}
		}
	}
	return held
}

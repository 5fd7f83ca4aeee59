package facts

import (
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Sharing is a time when two tenants had functions of one exclusive domain, by the ledger.
type Sharing struct {
	Domain isolation.ExclusiveDomain
	// First had its function when Second got its own.
	First, Second *PastTenancy
}

// Since is when the second tenant got its function, RFC 3339 in UTC.
func (s *Sharing) Since() string { return s.Second.From.UTC().Format(time.RFC3339) }

// Sharings returns each case in which a tenant got a function in an exclusive domain of another tenant, by the ledger, since the
// present node config applies. The domain of a function is that of the device at its address now. Tenancies without the tenant's
// ID, and functions that are gone or replaced by other devices, are left out: nothing can be proven about them.
func (n *Node) Sharings() []Sharing {
	type key struct{}
	return Memo(n, key{}, n.sharings)
}

func (n *Node) sharings() []Sharing {
	history, since := n.sinceConfig()
	planned, _ := n.Planned()
	made := plan.MakeDomains(planned.Snapshot, planned.Selection)
	if history == nil || made == nil {
		return nil
	}
	var found []Sharing
	for i, second := range history.Tenancies {
		// A Prepare that was undone gave its tenant no device.
		if second.From.Before(since) || second.Claim.Tenant == "" || second.Undone {
			continue
		}
		for _, first := range history.Tenancies[:i] {
			if first.Claim.Tenant == "" || first.Claim.Tenant == second.Claim.Tenant || first.Undone || !first.At(second.From) {
				continue
			}
			if d, ok := sharedDomain(n.Snapshot, made, &first.Device, &second.Device); ok {
				found = append(found, Sharing{d, first, second})
			}
		}
	}
	return found
}

// sinceConfig returns the history of the ledger, and the time from which the present node config applies without interruption: the
// first of the latest consecutive starts of the plugin with its digest. The history is nil if that time is unknown.
func (n *Node) sinceConfig() (*History, time.Time) {
	report, _ := n.Ledger()
	digest, err := nodeconfig.Digest(n.offer.config)
	if report == nil || err != nil {
		return nil, time.Time{}
	}
	history, since := &History{}, time.Time{}
	for entry, err := range ledger.Events(newLedgerFiles(n.fs)) {
		if err != nil || entry.Event.Seq >= report.Size {
			continue // it is among the report's problems
		}
		switch e := entry.Event; {
		case e.Type != ledger.Start:
		// Another config applied in between, so earlier starts are ignored.
		case e.Config != digest:
			since = time.Time{}
		case since.IsZero():
			since = e.Time
		}
		history.Add(entry.Event)
	}
	if since.IsZero() {
		return nil, since
	}
	return history, since
}

// sharedDomain returns an exclusive domain that both functions are in.
func sharedDomain(s *device.Snapshot, made *plan.MadeDomains, a, b *ledger.Device) (isolation.ExclusiveDomain, bool) {
	first, second := sameFunction(s, a), sameFunction(s, b)
	if first == nil || second == nil {
		return isolation.ExclusiveDomain{}, false
	}
	of, _ := made.Around(first)
	and, _ := made.Around(second)
	for _, d := range of {
		if slices.Contains(and, d) {
			return d, true
		}
	}
	return isolation.ExclusiveDomain{}, false
}

// sameFunction returns the function that is now at the address of a function in the ledger. It returns nil if there is none, or if
// it is another device.
func sameFunction(s *device.Snapshot, d *ledger.Device) *device.Function {
	f, ok := s.Function(d.Address)
	if !ok || d.Vendor != pci.ID(0) && (f.Vendor != d.Vendor || f.Device != d.Device) {
		return nil
	}
	return f
}

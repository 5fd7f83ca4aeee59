package journal

import (
	"context"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Drain marks a drained function. No new claim gets the function, or a function that is assigned with it: its group,
// its companions, or a PF's VFs. A claim that has the function keeps it. The mark survives reboots, and only an
// operator removes it.
type Drain struct {
	// Address is the address that the function had; [LocateDrains] finds the present one.
	Address  pci.Address     `json:"address"`
	Identity device.Identity `json:"identity,omitzero"`
	// Reason is the operator's.
	Reason string `json:"reason"`
	// Evict says whether pods that have the function are evicted.
	Evict bool `json:"evict,omitempty"`
	// By is who requested the drain: "uid 0, alice by sudo".
	By string `json:"by,omitempty"`
	// Since is the time of the request, RFC 3339 in UTC.
	Since string `json:"since"`
	// Gone is set by [LocateDrains] if another device has the address.
	Gone bool `json:"-"`
}

// Concerns reports whether a record has the drained function, or a VF of it. If an identity is unknown, the addresses
// decide.
func (d *Drain) Concerns(rec *Record) bool {
	return slices.ContainsFunc(rec.Plan.Functions, func(fn plan.Function) bool {
		if fn.PF != nil && *fn.PF == d.Address {
			return true
		}
		if d.Identity == (device.Identity{}) || fn.Identity == (device.Identity{}) {
			return fn.Address == d.Address
		}
		return d.Identity.Match(fn.Identity) == device.Agrees
	})
}

// LocateDrains returns drains with the present addresses of their functions. If a function is not in the snapshot, its
// drain keeps the former address. If another device has that address now, Gone is set.
func LocateDrains(drains []Drain, snap *device.Snapshot) []Drain {
	located := slices.Clone(drains)
	for i := range located {
		d := &located[i]
		if d.Identity == (device.Identity{}) {
			continue
		}
		if f := snap.Find(d.Identity).Function; f != nil {
			d.Address = f.Address
			continue
		}
		f, taken := snap.Function(d.Address)
		d.Gone = taken && d.Identity.Match(snap.Identify(f)) == device.Differs
	}
	slices.SortStableFunc(located, func(a, b Drain) int { return a.Address.Compare(b.Address) })
	return located
}

// DrainReasons returns why functions of a snapshot are drained, by address.
func DrainReasons(drains []Drain, snap *device.Snapshot) map[pci.Address]string {
	why := map[pci.Address]string{}
	for _, d := range LocateDrains(drains, snap) {
		if !d.Gone {
			why[d.Address] = d.Reason
		}
	}
	return why
}

func (s *Store) marksDrain() marks[Drain] { return marks[Drain]{s, drains()} }

func drains() markKind[Drain] {
	return markKind[Drain]{dir: "drained", what: "mark as drained", of: "drained"}
}

func (d Drain) markedAt() pci.Address     { return d.Address }
func (d Drain) markedAs() device.Identity { return d.Identity }

func (Drain) unreadable(a pci.Address, path string) Drain {
	return Drain{Address: a, Reason: unreadable(path)}
}

// MarkDrained writes a mark durably: when it returns nil, the mark survives a power failure. It replaces an existing
// mark.
func (s *Store) MarkDrained(ctx context.Context, d Drain) error { return s.marksDrain().put(ctx, d) }

// LiftDrain removes a mark durably. It finds the mark by its identity, or by its address if it has no identity. A
// missing mark is not an error.
func (s *Store) LiftDrain(ctx context.Context, d Drain) error {
	marks := s.marksDrain()
	return marks.alone(ctx, func() error {
		_, err := marks.lift(d.Address, d.Identity)
		return err
	})
}

// Drains returns all marks, by address. An unreadable file still marks its function. If Drains returns an error, it is
// unknown which functions are drained.
func (s *Store) Drains() ([]Drain, error) { return s.marksDrain().all() }

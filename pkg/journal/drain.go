package journal

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Drain marks a function that an operator takes out of use: no claim gets it any
// more, nor what goes with it (its group and companions, a PF's VFs); who has it
// keeps it. It outlives reboots, and is lifted by the operator alone.
type Drain struct {
	Address pci.Address `json:"address"`
	// Reason is the operator's.
	Reason string `json:"reason"`
	// Evict says that pods which have it are to go, too.
	Evict bool `json:"evict,omitempty"`
	// By is who asked for it: "uid 0, alice by sudo".
	By string `json:"by,omitempty"`
	// Since is when it was asked for, RFC 3339 in UTC.
	Since string `json:"since"`
}

// Concerns reports whether a record has the drained function, or a VF of it.
func (d *Drain) Concerns(rec *Record) bool {
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if fn.Address == d.Address || fn.PF != nil && *fn.PF == d.Address {
			return true
		}
	}
	return false
}

// SortDrains returns marks by address.
func SortDrains(byAddress map[pci.Address]Drain) []Drain {
	all := make([]Drain, 0, len(byAddress))
	for _, d := range byAddress {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Drain) int { return a.Address.Compare(b.Address) })
	return all
}

func (s *Store) marksDrain() marks[Drain] { return marks[Drain]{s, drains()} }

func drains() markKind[Drain] {
	return markKind[Drain]{
		dir: "drained", what: "mark as drained", of: "drained",
		address:    func(d *Drain) pci.Address { return d.Address },
		unreadable: func(a pci.Address, path string) Drain { return Drain{Address: a, Reason: unreadable(path)} },
	}
}

// MarkDrained writes a mark durably: when it returns nil, the mark survives a
// power failure. One that is there is replaced.
func (s *Store) MarkDrained(d Drain) error { return s.marksDrain().put(d) }

// LiftDrain lifts a mark durably. A missing one is no error.
func (s *Store) LiftDrain(a pci.Address) error { return s.marksDrain().lift(a) }

// Drains returns all marks. A file that can't be read marks its function all the
// same. An error means that nobody knows which functions are in use.
func (s *Store) Drains() (map[pci.Address]Drain, error) { return s.marksDrain().all() }

package journal

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// ResetMark marks a function that a tenant could reach and for which no reset has
// been proven since: its claim's class waives the reset, or the node went down,
// or the function was off the bus when its claim was released. It outlives the
// claim's record and reboots (a restart of the machine is no proof), and is
// lifted by the next proven reset.
type ResetMark struct {
	Address pci.Address `json:"address"`
	// Claim is the UID of the claim that had the function.
	Claim string `json:"claim"`
	// Why is a phrase: "class waives the reset".
	Why string `json:"why"`
	// Since is when that claim ended here, RFC 3339 in UTC.
	Since string `json:"since"`
}

func (s *Store) resetMarks() marks[ResetMark] { return marks[ResetMark]{s, resetMarkKind()} }

func resetMarkKind() markKind[ResetMark] {
	return markKind[ResetMark]{
		dir: "unclean", what: "mark as unclean", of: "not clean",
		address:    func(m *ResetMark) pci.Address { return m.Address },
		unreadable: func(a pci.Address, path string) ResetMark { return ResetMark{Address: a, Why: unreadable(path)} },
	}
}

func unreadable(path string) string { return "its mark " + path + " can't be read" }

// MarkNeedsReset writes a mark durably: when it returns nil, the mark survives a
// power failure. One that is there is replaced.
func (s *Store) MarkNeedsReset(m ResetMark) error { return s.resetMarks().put(m) }

// MarkClean lifts a mark durably, after a proven reset. A missing one is no
// error.
func (s *Store) MarkClean(a pci.Address) error { return s.resetMarks().lift(a) }

// NeedsReset returns all marks. A file that can't be read marks its function all
// the same. An error means that nobody knows which functions are clean.
func (s *Store) NeedsReset() (map[pci.Address]ResetMark, error) { return s.resetMarks().all() }

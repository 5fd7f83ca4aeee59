package journal

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// Unclean marks a function that a tenant could reach and for which no reset has
// been proven since: its claim's class waives the reset, or the node went down,
// or the function was off the bus when its claim was released. It outlives the
// claim's record and reboots (a restart of the machine is no proof), and is
// lifted by the next proven reset.
type Unclean struct {
	Address pci.Address `json:"address"`
	// Claim is the UID of the claim that had the function.
	Claim string `json:"claim"`
	// Why is a phrase: "class waives the reset".
	Why string `json:"why"`
	// Since is when that claim ended here, RFC 3339 in UTC.
	Since string `json:"since"`
}

func (s *Store) marksUnclean() marks[Unclean] { return marks[Unclean]{s, uncleans()} }

func uncleans() markKind[Unclean] {
	return markKind[Unclean]{
		dir: "unclean", what: "mark as unclean", of: "not clean",
		address:    func(m *Unclean) pci.Address { return m.Address },
		unreadable: func(a pci.Address, path string) Unclean { return Unclean{Address: a, Why: unreadable(path)} },
	}
}

func unreadable(path string) string { return "its mark " + path + " can't be read" }

// MarkUnclean writes a mark durably: when it returns nil, the mark survives a
// power failure. One that is there is replaced.
func (s *Store) MarkUnclean(m Unclean) error { return s.marksUnclean().put(m) }

// MarkClean lifts a mark durably, after a proven reset. A missing one is no
// error.
func (s *Store) MarkClean(a pci.Address) error { return s.marksUnclean().lift(a) }

// Unclean returns all marks. A file that can't be read marks its function all
// the same. An error means that nobody knows which functions are clean.
func (s *Store) Unclean() (map[pci.Address]Unclean, error) { return s.marksUnclean().all() }

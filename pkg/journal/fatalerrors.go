package journal

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// FatalErrors marks how many fatal errors of a function are accounted for: those that
// the kernel had counted when the function was proven clean last, or when an operator
// put it to use again. The kernel counts from the boot on, or from when the function was found.
type FatalErrors struct {
	Address pci.Address `json:"address"`
	BootID  string      `json:"bootID"`
	Count   uint64      `json:"count"`
}

func (s *Store) fatalErrors() marks[FatalErrors] {
	return marks[FatalErrors]{
		store: s, dir: "fatal-errors", what: "account for fatal errors", of: "without new fatal errors",
		address:    func(m *FatalErrors) pci.Address { return m.Address },
		unreadable: func(a pci.Address, _ string) FatalErrors { return FatalErrors{Address: a} }, // accounts for none
	}
}

// MarkFatalErrors writes a mark durably. One that is there is replaced.
func (s *Store) MarkFatalErrors(m FatalErrors) error { return s.fatalErrors().put(m) }

// FatalErrors returns all marks.
func (s *Store) FatalErrors() (map[pci.Address]FatalErrors, error) { return s.fatalErrors().all() }

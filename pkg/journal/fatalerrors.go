package journal

import (
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// FatalErrors marks how many fatal errors of a function are accounted for: those that
// the kernel had counted when the function was proven clean last, or when an operator
// put it to use again. The kernel counts from the boot on, or from when the function was found.
type FatalErrors struct {
	Address pci.Address `json:"address"`
	BootID  string      `json:"bootID"`
	Count   uint64      `json:"count"`
}

func (s *Store) marksFatalErrors() marks[FatalErrors] { return marks[FatalErrors]{s, fatalErrors()} }

func fatalErrors() markKind[FatalErrors] {
	return markKind[FatalErrors]{
		dir: "fatal-errors", what: "account for fatal errors", of: "without new fatal errors",
		address:    func(m *FatalErrors) pci.Address { return m.Address },
		unreadable: func(a pci.Address, _ string) FatalErrors { return FatalErrors{Address: a} }, // accounts for none
	}
}

// MarkFatalErrors writes a mark durably. One that is there is replaced.
func (s *Store) MarkFatalErrors(m FatalErrors) error { return s.marksFatalErrors().put(m) }

// FatalErrors returns all marks.
func (s *Store) FatalErrors() (map[pci.Address]FatalErrors, error) { return s.marksFatalErrors().all() }

// Unaccounted returns the functions that reported fatal errors for which no mark of this
// boot accounts.
func Unaccounted(snap *device.Snapshot, marks map[pci.Address]FatalErrors) map[pci.Address]bool {
	grown := map[pci.Address]bool{}
	for i := range snap.Functions {
		f := &snap.Functions[i]
		m, marked := marks[f.Address]
		accounted := marked && m.BootID == snap.Host.BootID && m.Count == f.FatalErrors
		if f.FatalErrors > 0 && !accounted {
			grown[f.Address] = true
		}
	}
	return grown
}

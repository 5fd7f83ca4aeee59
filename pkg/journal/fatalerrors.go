package journal

import (
	"context"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// FatalErrors says how many fatal errors of a function are accounted for: it is the kernel's count at the time when the
// function was last proven clean or an operator returned it to service. The kernel counts from the boot, or from when
// it found the function.
type FatalErrors struct {
	Address pci.Address `json:"address"`
	BootID  string      `json:"bootID"`
	// Inode is the inode of the function's directory in sysfs; see [device.Identity].
	Inode uint64 `json:"inode,omitempty"`
	Count uint64 `json:"count"`
}

func (s *Store) marksFatalErrors() marks[FatalErrors] { return marks[FatalErrors]{s, fatalErrors()} }

func fatalErrors() markKind[FatalErrors] {
	return markKind[FatalErrors]{dir: "fatal-errors", what: "account for fatal errors", of: "without new fatal errors"}
}

func (m FatalErrors) markedAt() pci.Address { return m.Address }

// markedAs returns an unknown identity, so that a new mark replaces the old one at its address.
func (FatalErrors) markedAs() device.Identity { return device.Identity{} }

// unreadable returns a mark that accounts for no error.
func (FatalErrors) unreadable(a pci.Address, _ string) FatalErrors { return FatalErrors{Address: a} }

// MarkFatalErrors writes a mark durably and replaces an existing one.
func (s *Store) MarkFatalErrors(ctx context.Context, m FatalErrors) error {
	return s.marksFatalErrors().put(ctx, m)
}

// FatalErrors returns all marks.
func (s *Store) FatalErrors() ([]FatalErrors, error) { return s.marksFatalErrors().all() }

// Unaccounted returns the functions that reported fatal errors for which no mark of this boot accounts.
func Unaccounted(snap *device.Snapshot, marks []FatalErrors) map[pci.Address]bool {
	grown := map[pci.Address]bool{}
	for i := range snap.Functions {
		f := &snap.Functions[i]
		accounted := func(m FatalErrors) bool {
			same := m.Inode == f.Inode || f.Inode == 0 // in an archive
			return m.Address == f.Address && m.BootID == snap.Host.BootID && same && m.Count == f.FatalErrors
		}
		if f.FatalErrors > 0 && !slices.ContainsFunc(marks, accounted) {
			grown[f.Address] = true
		}
	}
	return grown
}

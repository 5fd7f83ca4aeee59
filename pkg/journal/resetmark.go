package journal

import (
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ResetMark marks a function that a tenant could reach and that was not proven clean since. Reasons are that the
// claim's class waives the reset, that the reset could not be proven, that the node stopped, or that the function was
// off the bus when its claim was released. A start of Fabric Manager also marks GPUs that no claim has. The mark
// outlives the claim's record and reboots, because a restart of the machine proves nothing. The next proven reset
// removes it.
//
// If the function is not found in a later boot and can't be told from others of its model, each of these counts as
// marked until it is in Proven. See [NeedReset].
type ResetMark struct {
	// Address is the address that the function had.
	Address  pci.Address     `json:"address"`
	Identity device.Identity `json:"identity,omitzero"`
	// Claim is the UID of the claim that had the function; empty if the claim is unknown, or if the reason is not a
	// tenant.
	Claim string `json:"claim"`
	// Why is a phrase: "class waives the reset".
	Why string `json:"why"`
	// Since is when the mark was made, RFC 3339 in UTC.
	Since string `json:"since"`
	// Proven are the functions that might have been the marked one and were reset since the mark was made.
	Proven []device.Identity `json:"proven,omitempty"`
}

// NeedReset returns the functions of a snapshot that may be the marked ones and are not proven clean since. A mark
// without an identity marks the function at its address.
func NeedReset(marks []ResetMark, snap *device.Snapshot) map[pci.Address]bool {
	need := map[pci.Address]bool{}
	if len(marks) == 0 {
		return need
	}
	finder := device.NewFinder(snap)
	for i := range marks {
		for _, a := range marks[i].located(finder) {
			need[a] = true
		}
	}
	return need
}

// located returns the addresses of the functions that the mark marks, or may mark and that are not proven clean since.
func (m *ResetMark) located(finder *device.Finder) []pci.Address {
	if m.Identity == (device.Identity{}) {
		return []pci.Address{m.Address}
	}
	var all []pci.Address
	found := finder.Find(m.Identity)
	if found.Function != nil {
		all = append(all, found.Function.Address)
	}
	for _, f := range found.Perhaps {
		if !isAmong(m.Proven, finder.Identify(f)) {
			all = append(all, f.Address)
		}
	}
	return all
}

func (s *Store) resetMarks() marks[ResetMark] { return marks[ResetMark]{s, resetMarkKind()} }

func resetMarkKind() markKind[ResetMark] {
	return markKind[ResetMark]{dir: "unclean", what: "mark as unclean", of: "not clean"}
}

func (m ResetMark) markedAt() pci.Address     { return m.Address }
func (m ResetMark) markedAs() device.Identity { return m.Identity }

func (ResetMark) unreadable(a pci.Address, path string) ResetMark {
	return ResetMark{Address: a, Why: unreadable(path)}
}

// DecodeResetMark returns the mark in a file. a is the address in the file's name, from [MarkAddress]. If the file
// can't be read, the mark marks the function at that address.
func DecodeResetMark(path string, data []byte, a pci.Address) ResetMark {
	return resetMarkKind().decode(path, data, a)
}

func unreadable(path string) string { return "its mark " + path + " can't be read" }

// MarkNeedsReset writes marks durably: when it returns nil, they survive a power failure. They replace existing marks. If
// it returns an error, some may be written.
func (s *Store) MarkNeedsReset(ctx context.Context, all ...ResetMark) error {
	return s.resetMarks().put(ctx, all...)
}

// MarkClean removes the mark of a function durably, after a proven reset. If marks of other functions may be marks of
// this one, MarkClean adds the function to their Proven. A missing mark is not an error.
func (s *Store) MarkClean(ctx context.Context, a pci.Address, id device.Identity) error {
	return s.resetMarks().prove(ctx, &s.cleaned, proven{a, id}, func(m *ResetMark) *[]device.Identity { return &m.Proven })
}

// NeedsReset returns all marks, by address. An unreadable file still marks its function. If NeedsReset returns an
// error, it is unknown which functions are clean.
func (s *Store) NeedsReset() ([]ResetMark, error) { return s.resetMarks().all() }

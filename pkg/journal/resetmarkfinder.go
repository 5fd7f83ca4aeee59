package journal

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ResetMarkFinder finds the marks of many functions. It locates each mark in its snapshot once.
type ResetMarkFinder struct {
	marks  []ResetMark
	finder *device.Finder
	// at has, by the address that a function has in the snapshot, the index of its first mark.
	at map[pci.Address]int
}

// NewResetMarkFinder returns a finder of marks on functions of a snapshot. Neither may change afterwards.
func NewResetMarkFinder(marks []ResetMark, snap *device.Snapshot) *ResetMarkFinder {
	k := &ResetMarkFinder{marks: marks, finder: device.NewFinder(snap), at: map[pci.Address]int{}}
	for i := range slices.Backward(marks) {
		for _, a := range marks[i].located(k.finder) {
			k.at[a] = i
		}
	}
	return k
}

// Find returns the index of a mark that marks a function, or that may mark it and the function is not proven clean since. a and id are
// the address and the identity that the function has, or had if it is not in the snapshot any more. If an identity is unknown, the
// addresses decide.
func (k *ResetMarkFinder) Find(a pci.Address, id device.Identity) (index int, ok bool) {
	if f := k.finder.Find(id).Function; f != nil {
		if i, ok := k.at[f.Address]; ok {
			return i, true
		}
	}
	i := slices.IndexFunc(k.marks, func(m ResetMark) bool { return concerns(m, a, id) })
	return i, i >= 0
}

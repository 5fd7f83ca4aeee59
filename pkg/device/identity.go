package device

import (
	"fmt"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Identity identifies the PCI function that a record or a mark is about. An address can't do that: another device may
// get the address, and firmware may give a device another address at the next boot.
//
// There are two comparisons. [Identity.Is] reports whether a function is the very one that the kernel had at that time.
// Code that changes a function uses Is: if it is false, the recorded function is gone. [Identity.Match] reports whether
// two functions are the same piece of hardware, even in another boot, or after the kernel removed the function and
// found it again. Marks and quarantines use Match.
type Identity struct {
	Vendor    pci.ID    `json:"vendor"`
	Device    pci.ID    `json:"device"`
	SubVendor pci.ID    `json:"subsystemVendor"`
	SubDevice pci.ID    `json:"subsystemDevice"`
	Class     pci.Class `json:"class"`
	Revision  uint8     `json:"revision"`
	// Serial is the serial number of the function's card; for a VF, of its PF's card. It is empty if the card has no
	// serial number, or if the number can't be read.
	Serial string `json:"serialNumber,omitempty"`
	// Slot is the path from the root bus, "pci0000:3a/01.0/00.0". For a VF it is the PF's path with the VF's index,
	// ".../00.0/vf3". It has no bus numbers below the root, because firmware changes these when a card is added. It is
	// empty if it is unknown.
	Slot string `json:"slot,omitempty"`
	// BootID is the boot, and Inode the inode of the function's directory in sysfs, which no other function has in that
	// boot. They are zero if they are unknown.
	BootID string `json:"bootID,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
}

// Identify returns the identity of f, which is of the snapshot.
func (s *Snapshot) Identify(f *Function) Identity {
	id := newModel(f)
	id.BootID, id.Inode = s.Host.BootID, f.Inode
	if f.VF == nil {
		id.Serial, id.Slot = s.serial(f), slotPath(f)
		return id
	}
	pf, ok := s.Function(f.VF.PF)
	if !ok {
		return id
	}
	id.Serial = s.serial(pf)
	if slot := slotPath(pf); slot != "" {
		id.Slot = fmt.Sprintf("%s/vf%d", slot, f.VF.Index)
	}
	return id
}

// newModel returns the part of f's identity that all functions of its model have.
func newModel(f *Function) Identity {
	return Identity{Vendor: f.Vendor, Device: f.Device, SubVendor: f.SubVendor, SubDevice: f.SubDevice, Class: f.Class, Revision: f.Revision}
}

// serial returns the serial number of f's card. It looks at function 0 if f has none, because only the first function
// of a card must have the number.
func (s *Snapshot) serial(f *Function) string {
	if f.Capabilities.Serial != "" {
		return f.Capabilities.Serial
	}
	first := f.Address
	first.Function = 0
	if card, ok := s.Function(first); ok && card.VF == nil && f.VF == nil {
		return card.Capabilities.Serial
	}
	return ""
}

func slotPath(f *Function) string {
	if f.Root == "" {
		return ""
	}
	slot := make([]string, 0, len(f.Upstream)+2)
	slot = append(slot, f.Root)
	for _, bridge := range f.Upstream {
		slot = append(slot, place(bridge))
	}
	return strings.Join(append(slot, place(f.Address)), "/")
}

// place returns a function's place on its bus.
func place(a pci.Address) string { return fmt.Sprintf("%02x.%x", a.Device, a.Function) }

// Is reports whether the function with the identity now is the very one with id, so that the kernel has not removed it
// since. It returns false if that is unknown: in another boot, or if an inode is unknown.
func (id Identity) Is(now Identity) bool {
	return id.Inode != 0 && id.Inode == now.Inode && id.BootID == now.BootID
}

// Match is the answer to whether two identities are of one piece of hardware.
type Match int

// Answers of [Identity.Match], in order of certainty.
const (
	// Differs: they are of different hardware.
	Differs Match = iota
	// Undecided: they may be of the same hardware.
	Undecided
	// Agrees: they are of the same hardware. Identities can't distinguish a device without a serial number from a
	// replacement of the same model in the same slot, so these two count as one device.
	Agrees
)

// Match reports whether id and now are of one piece of hardware. If both have a serial number, it decides. Otherwise they
// must be of the same model in the same slot.
func (id Identity) Match(now Identity) Match {
	bothHave := id.Serial != "" && now.Serial != ""
	switch {
	case id.Is(now):
		return Agrees
	case bothHave && (id.Serial != now.Serial || id.unit() != now.unit()):
		return Differs
	case bothHave && !id.sameModel(now):
		return Undecided // its firmware was changed
	case bothHave:
		return Agrees
	case !id.sameModel(now):
		return Differs
	case id.Serial == now.Serial && id.Slot != "" && id.Slot == now.Slot:
		return Agrees
	}
	return Undecided // if only one has a serial number, that of the other may be unreadable
}

func (id Identity) sameModel(now Identity) bool {
	return id.Vendor == now.Vendor && id.Device == now.Device && id.SubVendor == now.SubVendor && id.SubDevice == now.SubDevice &&
		id.Class == now.Class && id.Revision == now.Revision
}

// unit is the function's part of the slot: its number on its card.
func (id Identity) unit() string {
	if before, vf := path.Split(id.Slot); strings.HasPrefix(vf, "vf") {
		return path.Join(path.Base(before), vf)
	}
	return path.Base(id.Slot)
}

// Found is the result of the search for the function that had an identity before.
type Found struct {
	// Function is the function now. It is nil if the function is gone, or if several may be it.
	Function *Function
	// Sure says that Function is certainly the same function. Otherwise a fact is unknown that could distinguish it
	// from another function of its model in its slot.
	Sure bool
	// Perhaps are the functions, by address, that may be the one, if it is unknown which of them is.
	Perhaps []*Function
}

// Find returns the present function of a former identity.
func (s *Snapshot) Find(id Identity) Found {
	if f, ok := s.now(id); ok {
		return Found{Function: f, Sure: true}
	}
	var all []identified
	for i := range s.Functions {
		if f := &s.Functions[i]; id.mayBe(f) {
			all = append(all, identified{f, s.Identify(f)})
		}
	}
	return choose(id, all)
}

// mayBe reports whether f can be the function with the identity, by facts that are quick to compare.
func (id Identity) mayBe(f *Function) bool {
	return id.sameModel(newModel(f)) || id.Serial != "" && id.Vendor == f.Vendor
}

// identified is a function and its identity.
type identified struct {
	f  *Function
	id Identity
}

// choose returns which of the functions had an identity before.
func choose(id Identity, all []identified) Found {
	var same, unknown []identified
	for _, one := range all {
		switch id.Match(one.id) {
		case Agrees:
			same = append(same, one)
		case Undecided:
			unknown = append(unknown, one)
		case Differs:
		}
	}
	if f := only(id, same); f != nil {
		return Found{Function: f, Sure: true}
	}
	if len(same) > 0 { // cards with one serial number
		return Found{Perhaps: functions(same)}
	}
	for _, one := range unknown {
		if one.id.Slot != "" && one.id.Slot == id.Slot {
			return Found{Function: one.f}
		}
	}
	return Found{Perhaps: functions(unknown)}
}

func functions(all []identified) []*Function {
	var fs []*Function
	for _, one := range all {
		fs = append(fs, one.f)
	}
	return fs
}

// now returns the very function that had the identity, by [Identity.Is].
func (s *Snapshot) now(id Identity) (*Function, bool) {
	if id.Inode == 0 || id.BootID != s.Host.BootID {
		return nil, false
	}
	for i := range s.Functions {
		if s.Functions[i].Inode == id.Inode {
			return &s.Functions[i], true
		}
	}
	return nil, false
}

// only returns the right one of several functions: the only one, or the one in the same slot; nil if there is no such
// function.
func only(id Identity, same []identified) *Function {
	if len(same) == 1 {
		return same[0].f
	}
	for _, one := range same {
		if one.id.Slot == id.Slot {
			return one.f
		}
	}
	return nil
}

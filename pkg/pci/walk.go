package pci

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Offsets and masks of the configuration header (PCI_* in pci_regs.h).
const (
	headerSize       = 64
	conventionalSize = 256
	expressSize      = 4096

	offStatus         = 0x06
	offCapabilityList = 0x34
	statusHasList     = 0x10
)

// Identifiers of conventional capabilities (PCI_CAP_ID_*).
const (
	capPower    = 0x01
	capMSI      = 0x05
	capExpress  = 0x10
	capMSIX     = 0x11
	capAdvanced = 0x13
)

// Identifiers of extended capabilities (PCI_EXT_CAP_ID_*).
const (
	extAER   = 0x0001
	extACS   = 0x000d
	extATS   = 0x000f
	extSRIOV = 0x0010
	extPRI   = 0x0013
	extPASID = 0x001b
	extDPC   = 0x001d
)

// Length limits of the two lists, as the kernel has them (PCI_FIND_CAP_TTL and
// the ttl of pci_find_next_ext_capability): a list that is longer has a loop.
const (
	maxCapabilities = 48
	maxExtended     = (expressSize - conventionalSize) / 8
)

// MalformedError says that a capability list can't be followed to its end. The
// device writes the list, so it may hold anything.
type MalformedError struct {
	// Offset is where in configuration space the list breaks off.
	Offset int
	// Problem completes the sentence: "the capability at 0x40 ...".
	Problem string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("the capability at 0x%02x %s", e.Offset, e.Problem)
}

// Dead reports whether a configuration space reads all ones, which no living
// function's does: it fell off the bus or does not answer. Vendor and device
// ids of ffff say so, except for a VF, whose ids read ffff by the SR-IOV
// specification; there the whole header must be ones.
func Dead(config []byte, isVF bool) bool {
	n := 4
	if isVF {
		n = headerSize
	}
	return len(config) >= n && !slices.ContainsFunc(config[:n], func(b byte) bool { return b != 0xff })
}

// ParseCapabilities walks the capability lists of a configuration space: as
// many of its bytes as the kernel lets the caller read, from offset 0 (64
// without CAP_SYS_ADMIN, 256 for a conventional function, 4096 for PCI
// Express).
//
// It returns what was found in any case. With a *[MalformedError], and for a
// space that reads all ones, the rest is unknown and Truncated is set.
func ParseCapabilities(config []byte) (Capabilities, error) {
	var caps Capabilities
	if len(config) < headerSize {
		caps.Truncated = true
		return caps, &MalformedError{Offset: len(config), Problem: "is not readable: fewer than 64 bytes of configuration space"}
	}
	if Dead(config, true) {
		caps.Truncated = true
		return caps, nil
	}
	chain, err := Chain(config)
	for _, c := range chain {
		caps.take(c, config[c.Offset:])
	}
	caps.Truncated = err != nil || truncated(config, &caps)
	return caps, err
}

// truncated reports whether the space goes on where config ends. Only PCI
// Express has more than 256 bytes.
func truncated(config []byte, caps *Capabilities) bool {
	if caps.Express == nil {
		return len(config) < conventionalSize
	}
	return len(config) < expressSize
}

// Capability is one entry of a function's capability lists.
type Capability struct {
	// ID is a PCI_CAP_ID_* number, or a PCI_EXT_CAP_ID_* one if Extended.
	ID       uint16
	Extended bool
	// Offset is where in configuration space it begins.
	Offset int
}

// Chain returns the entries of both capability lists in the order of the
// lists, the extended ones (of a PCI Express function, from 0x100 on) last. It
// ends quietly where config does, and returns what it found before a
// *[MalformedError].
func Chain(config []byte) ([]Capability, error) {
	if len(config) < headerSize || config[offStatus]&statusHasList == 0 {
		return nil, nil
	}
	chain, err := conventional(config)
	if err != nil {
		return chain, err
	}
	more, err := extended(config)
	return append(chain, more...), err
}

// conventional follows the list in the first 256 bytes.
func conventional(config []byte) ([]Capability, error) {
	var chain []Capability
	// The two low bits of a pointer are reserved and masked off.
	at := int(config[offCapabilityList] &^ 3)
	for range maxCapabilities {
		if at == 0 || at+2 > len(config) {
			return chain, nil
		}
		if at < headerSize {
			return chain, &MalformedError{Offset: at, Problem: "lies inside the header"}
		}
		chain = append(chain, Capability{ID: uint16(config[at]), Offset: at})
		at = int(config[at+1] &^ 3)
	}
	return chain, &MalformedError{Offset: at, Problem: "is part of a loop"}
}

// extended follows the list of a PCI Express function.
func extended(config []byte) ([]Capability, error) {
	var chain []Capability
	at := conventionalSize
	for range maxExtended {
		if at == 0 || at+4 > len(config) {
			return chain, nil
		}
		if at < conventionalSize {
			return chain, &MalformedError{Offset: at, Problem: "is in the extended list but lies below 0x100"}
		}
		header := binary.LittleEndian.Uint32(config[at:])
		// Zero: the list is empty. Ones: nothing answers beyond 256 bytes.
		if header == 0 || header == 1<<32-1 {
			return chain, nil
		}
		chain = append(chain, Capability{ID: uint16(header), Extended: true, Offset: at})
		at = int(header>>20) &^ 3
	}
	return chain, &MalformedError{Offset: at, Problem: "is part of a loop"}
}

// take decodes one capability; b begins at its header and may end before the
// capability does.
func (c *Capabilities) take(entry Capability, b []byte) {
	if entry.Extended {
		c.takeExtended(entry.ID, b)
		return
	}
	switch entry.ID {
	case capPower:
		c.Power = power(b)
	case capMSI:
		c.MSI = true
	case capMSIX:
		c.MSIX = true
	case capExpress:
		c.Express = express(b)
	case capAdvanced:
		c.AFFLR = advancedFLR(b)
	}
}

// takeExtended decodes one extended capability, as take does.
func (c *Capabilities) takeExtended(id uint16, b []byte) {
	switch id {
	case extAER:
		c.AER = true
	case extACS:
		c.ACS = acs(b)
	case extATS:
		c.ATS = switchable(b, 6, 0x8000)
	case extSRIOV:
		c.SRIOV = sriov(b)
	case extPRI:
		c.PRI = switchable(b, 4, 0x0001)
	case extPASID:
		c.PASID = switchable(b, 6, 0x0001)
	case extDPC: // triggered by fatal errors, or by others too
		c.DPC = switchable(b, 6, 0x0003)
	}
}

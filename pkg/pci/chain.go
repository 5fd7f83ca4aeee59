package pci

import "encoding/binary"

// Capability is one entry of a function's capability lists.
type Capability struct {
	// ID is a PCI_CAP_ID_* number, or a PCI_EXT_CAP_ID_* one if Extended.
	ID       uint16
	Extended bool
	// Offset is where in configuration space it begins.
	Offset int
}

// isSwitch reports whether the capability is one of [Capabilities.Switches].
func (c Capability) isSwitch() bool {
	return c.Extended && (c.ID == extACS || c.ID == extATS || c.ID == extPRI || c.ID == extPASID)
}

// SwitchBytes is how many bytes of each of [Capabilities.Switches] hold its header and its control word.
const SwitchBytes = 8

// Reread returns the capabilities with the present control words of Switches. registers has the first [SwitchBytes]
// bytes of each of these capabilities, in order. Reread returns false if a capability is not where it was: then it is
// another function, or the function does not answer.
func (c Capabilities) Reread(registers [][]byte) (Capabilities, bool) {
	if len(registers) != len(c.Switches) {
		return c, false
	}
	for i, b := range registers {
		id, ok := word(b, 0)
		if !ok || len(b) < SwitchBytes || id != c.Switches[i].ID {
			return c, false
		}
		c.takeExtended(id, b)
	}
	return c, true
}

// Chain returns the entries of both capability lists in the order of the lists. The extended list, which a PCI Express
// function has from 0x100 on, is last. Chain stops without an error at the end of config. With a *[MalformedError], it
// returns the entries before the malformed one.
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
		// The upper 12 bits point to the next capability. Two of them are reserved (PCI_EXT_CAP_NEXT).
		at = int(header>>20) &^ 3
	}
	return chain, &MalformedError{Offset: at, Problem: "is part of a loop"}
}

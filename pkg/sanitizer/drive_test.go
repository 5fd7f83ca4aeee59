package sanitizer

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Statuses that the drive returns.
const (
	invalidOpcode    = 0x001
	invalidField     = 0x002
	invalidNamespace = 0x00b
	outOfRange       = 0x080
	invalidFormat    = 0x10a
	notAttached      = 0x11a
	noCapacity       = 0x115
)

// drive is an NVMe controller that refuses what the specification lets it refuse. Its blocks have 512 bytes, and 8 bytes
// of metadata in LBA format 1.
type drive struct {
	admins, commands uint16 // OACS and ONCS
	formats          uint8  // FNA
	capacity         uint64 // bytes
	spaces           map[uint32]*space
	serial           string

	// refuse has the status for an opcode of an admin command or, with ioCommand, of another.
	refuse map[uint16]uint16
	// keeps: an erase or a write of zeros leaves the data there that it is asked for.
	keeps func(block uint64) bool
	// forgets: writes are not stored.
	forgets bool
	// fills is what a format leaves in the blocks.
	fills byte
	// afterFormat changes the drive after a format.
	afterFormat func(*drive)
	undeletable bool
	rescans     int
	opcodes     []uint16
}

// ioCommand marks the opcode of a command that is not an admin command.
const ioCommand = 0x100

type space struct {
	blocks   uint64
	format   uint8
	attached bool
	data     map[uint64][]byte // blocks that are not zero
}

const driveBlock = 512

// newDrive returns a drive with one namespace over its whole capacity, full of a tenant's data.
func newDrive(blocks uint64) *drive {
	d := &drive{
		admins: adminHasFormat | adminHasNamespaces, commands: hasWriteZeroes, formats: hasCryptoErase, capacity: blocks * driveBlock,
		spaces: map[uint32]*space{}, serial: "SN0001              ", refuse: map[uint16]uint16{},
	}
	d.put(1, blocks, true)
	return d
}

// put adds a namespace full of data.
func (d *drive) put(id uint32, blocks uint64, attached bool) {
	s := &space{blocks: blocks, attached: attached, data: map[uint64][]byte{}}
	for b := range blocks {
		s.data[b] = slices.Repeat([]byte("secret42"), driveBlock/8)
	}
	d.spaces[id] = s
}

func (d *drive) unallocated() uint64 {
	left := d.capacity
	for _, s := range d.spaces {
		left -= s.blocks * driveBlock
	}
	return left
}

func (d *drive) rescan() error { d.rescans++; return nil }

func refusal(status uint16) error { return &statusError{what: "the drive", status: status | 0x4000} }

func (d *drive) admin(c *nvmeCommand) (uint32, error) {
	d.opcodes = append(d.opcodes, uint16(c.opcode))
	if status, ok := d.refuse[uint16(c.opcode)]; ok {
		return 0, refusal(status)
	}
	switch c.opcode {
	case adminIdentify:
		return 0, d.identify(c)
	case adminGetLogPage:
		if c.cdw10 != 0x007f0003 || len(c.data) != 512 {
			return 0, refusal(invalidField)
		}
		c.data[0] = 1 | 2<<4
		copy(c.data[8:], "1.0.0   2.0.\x01  ")
		return 0, nil
	case adminFormat:
		return 0, d.format(c)
	case adminNSManage:
		return d.manage(c)
	case adminNSAttach:
		s := d.spaces[c.nsid]
		if s == nil || c.data[0] != 1 || binary.LittleEndian.Uint16(c.data[2:]) != 7 {
			return 0, refusal(invalidField)
		}
		s.attached = true
		return 0, nil
	}
	return 0, refusal(invalidOpcode)
}

func (d *drive) identify(c *nvmeCommand) error {
	le := binary.LittleEndian
	switch c.cdw10 {
	case cnsController:
		copy(c.data[4:24], d.serial)
		copy(c.data[24:64], "Scripted drive                          ")
		copy(c.data[64:72], "1.0.0   ")
		c.data[77] = 1 // 8 KiB
		le.PutUint16(c.data[78:], 7)
		le.PutUint16(c.data[256:], d.admins)
		le.PutUint64(c.data[296:], d.unallocated())
		le.PutUint16(c.data[520:], d.commands)
		c.data[524], c.data[525] = d.formats, 1
		return nil
	case cnsActive, cnsAllocated:
		if c.cdw10 == cnsAllocated && d.admins&adminHasNamespaces == 0 {
			return refusal(invalidField)
		}
		at := 0
		for _, id := range slices.Sorted(maps.Keys(d.spaces)) {
			if c.cdw10 == cnsAllocated || d.spaces[id].attached {
				le.PutUint32(c.data[at:], id)
				at += 4
			}
		}
		return nil
	case cnsNamespace:
		return d.identifyNamespace(c)
	}
	return refusal(invalidField)
}

func (d *drive) identifyNamespace(c *nvmeCommand) error {
	s := d.spaces[c.nsid]
	if c.nsid == everyNamespace {
		s = &space{}
	}
	if s == nil {
		return refusal(invalidNamespace)
	}
	binary.LittleEndian.PutUint64(c.data, s.blocks)
	c.data[25], c.data[26] = 1, s.format
	c.data[128+2] = 9
	c.data[132], c.data[132+2] = 8, 9
	return nil
}

func (d *drive) format(c *nvmeCommand) error {
	ses := c.cdw10 >> 9 & 7
	switch {
	case d.admins&adminHasFormat == 0:
		return refusal(invalidOpcode)
	case ses == sesCrypto && d.formats&hasCryptoErase == 0 || ses > sesCrypto:
		return refusal(invalidField)
	case c.cdw10&0xf > 1 || c.cdw10&^0xe0f != 0:
		return refusal(invalidFormat)
	case c.nsid != everyNamespace && d.formats&(formatsAll|erasesAll) != 0:
		return refusal(invalidField)
	case c.nsid != everyNamespace && (d.spaces[c.nsid] == nil || !d.spaces[c.nsid].attached):
		return refusal(invalidNamespace)
	}
	for id, s := range d.spaces {
		if c.nsid == everyNamespace || c.nsid == id {
			s.format = uint8(c.cdw10 & 0xf)
			d.clear(s, d.fills)
		}
	}
	if d.afterFormat != nil {
		d.afterFormat(d)
	}
	return nil
}

// clear sets all bytes of a namespace, except for the blocks that the drive keeps.
func (d *drive) clear(s *space, value byte) {
	for b := range s.blocks {
		switch {
		case d.keeps != nil && d.keeps(b):
		case value == 0:
			delete(s.data, b)
		default:
			s.data[b] = slices.Repeat([]byte{value}, driveBlock)
		}
	}
}

func (d *drive) manage(c *nvmeCommand) (uint32, error) {
	if d.admins&adminHasNamespaces == 0 {
		return 0, refusal(invalidOpcode)
	}
	if c.cdw10 == manageDelete {
		if c.nsid != everyNamespace {
			return 0, refusal(invalidNamespace)
		}
		if !d.undeletable {
			clear(d.spaces)
		}
		return 0, nil
	}
	blocks := binary.LittleEndian.Uint64(c.data)
	if blocks == 0 || blocks != binary.LittleEndian.Uint64(c.data[8:]) || c.data[26] != 0 {
		return 0, refusal(invalidField)
	}
	if blocks*driveBlock > d.unallocated() {
		return 0, refusal(noCapacity)
	}
	id := uint32(1)
	for d.spaces[id] != nil {
		id++
	}
	// What is on the medium does not go by a new namespace.
	d.put(id, blocks, false)
	return id, nil
}

func (d *drive) io(c *nvmeCommand) error {
	d.opcodes = append(d.opcodes, ioCommand|uint16(c.opcode))
	if status, ok := d.refuse[ioCommand|uint16(c.opcode)]; ok {
		return refusal(status)
	}
	s := d.spaces[c.nsid]
	if s == nil || !s.attached {
		return refusal(invalidNamespace)
	}
	first, count := uint64(c.cdw10)|uint64(c.cdw11)<<32, uint64(c.cdw12&0xffff)+1
	if c.opcode != nvmFlush && first+count > s.blocks {
		return refusal(outOfRange)
	}
	switch c.opcode {
	case nvmFlush:
		return nil
	case nvmWriteZeroes:
		if d.commands&hasWriteZeroes == 0 {
			return refusal(invalidOpcode)
		}
		for b := first; b < first+count; b++ {
			if d.keeps == nil || !d.keeps(b) {
				delete(s.data, b)
			}
		}
		return nil
	case nvmRead, nvmWrite:
		return d.transfer(s, c, first, count)
	}
	return refusal(invalidOpcode)
}

func (d *drive) transfer(s *space, c *nvmeCommand, first, count uint64) error {
	if s.format != 0 || uint64(len(c.data)) != count*driveBlock || len(c.data) > 8<<10 {
		return refusal(invalidField)
	}
	for i := range count {
		block := c.data[i*driveBlock : (i+1)*driveBlock]
		if c.opcode == nvmRead {
			clear(block)
			copy(block, s.data[first+i])
		} else if !d.forgets {
			s.data[first+i] = slices.Clone(block)
		}
	}
	return nil
}

// empty reports whether no namespace has data.
func (d *drive) empty() bool {
	for _, s := range d.spaces {
		if len(s.data) > 0 {
			return false
		}
	}
	return true
}

package sanitizer

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// identifySize is the size of all data structures that Identify returns.
const identifySize = 4096

// Values of CNS: what Identify returns (enum in include/linux/nvme.h).
const (
	cnsNamespace  = 0x00
	cnsController = 0x01
	cnsActive     = 0x02
	cnsAllocated  = 0x10
)

// controllerInfo is what a sanitizer needs of struct nvme_id_ctrl (include/linux/nvme.h).
type controllerInfo struct {
	serial, model, firmware string
	id                      uint16 // CNTLID
	maxTransfer             uint8  // MDTS: a power of two of the smallest page, 0 for no limit
	admin                   uint16 // OACS
	unallocated             uint64 // UNVMCAP in bytes, its lower half
	commands                uint16 // ONCS
	format                  uint8  // FNA
	writeCache              bool   // VWC
}

// Bits of the fields (NVM Express Base Specification 2.0, Identify Controller; NVME_CTRL_* in include/linux/nvme.h).
const (
	adminHasFormat     = 1 << 1 // OACS
	adminHasNamespaces = 1 << 3 // OACS
	hasWriteZeroes     = 1 << 3 // ONCS
	formatsAll         = 1 << 0 // FNA: a format applies to all namespaces
	erasesAll          = 1 << 1 // FNA: an erase applies to all namespaces
	hasCryptoErase     = 1 << 2 // FNA
)

func identifyController(c nvmeController) (controllerInfo, error) {
	d, err := identify(c, cnsController, 0)
	if err != nil {
		return controllerInfo{}, fmt.Errorf("identify the controller: %w", err)
	}
	le := binary.LittleEndian
	return controllerInfo{
		serial: text(d[4:24]), model: text(d[24:64]), firmware: text(d[64:72]),
		maxTransfer: d[77], id: le.Uint16(d[78:]), admin: le.Uint16(d[256:]), unallocated: le.Uint64(d[296:]),
		commands: le.Uint16(d[520:]), format: d[524], writeCache: d[525]&1 != 0,
	}, nil
}

// text returns an ASCII field, which is padded with spaces.
func text(field []byte) string { return strings.Trim(string(field), " \x00") }

func identify(c nvmeController, cns, nsid uint32) ([]byte, error) {
	data := make([]byte, identifySize)
	_, err := c.admin(&nvmeCommand{opcode: adminIdentify, nsid: nsid, cdw10: cns, data: data})
	return data, err
}

// namespaceIDs returns the namespaces of the list that cns names: one list has all, if they are fewer than 1024.
func namespaceIDs(c nvmeController, cns uint32) ([]uint32, error) {
	data, err := identify(c, cns, 0)
	if err != nil {
		return nil, fmt.Errorf("list the namespaces: %w", err)
	}
	var ids []uint32
	for at := 0; at < len(data); at += 4 {
		id := binary.LittleEndian.Uint32(data[at:])
		if id == 0 {
			return ids, nil
		}
		ids = append(ids, id)
	}
	return nil, fmt.Errorf("list the namespaces: there are %d or more", len(ids))
}

// namespace is what a sanitizer needs of struct nvme_id_ns (include/linux/nvme.h).
type namespace struct {
	id     uint32
	blocks uint64 // NSZE
	// lbaFormat is the number of the format that the namespace has (FLBAS), and protection its DPS.
	lbaFormat, protection uint8
	formats               []lbaFormat
}

// lbaFormat is one that the namespace can have.
type lbaFormat struct {
	number   uint8
	metadata uint16 // bytes for each block
	shift    uint8  // the block has 1<<shift bytes, 0 for a format that is not available
}

func (n *namespace) current() lbaFormat { return n.formats[n.lbaFormat] }
func (n *namespace) blockSize() uint64  { return 1 << n.current().shift }
func (n *namespace) bytes() uint64      { return n.blocks << n.current().shift }
func (n *namespace) name() string       { return fmt.Sprintf("namespace%d", n.id) }

// identifyNamespace returns a namespace of the controller, or for [everyNamespace] the formats that all can have.
func identifyNamespace(c nvmeController, id uint32) (*namespace, error) {
	d, err := identify(c, cnsNamespace, id)
	if err != nil {
		return nil, fmt.Errorf("identify namespace %d: %w", id, err)
	}
	const formats, formatSize, most = 128, 4, 64
	// NSZE is in bytes 7:0, NLBAF (which counts from 0) in 25, FLBAS in 26 with its upper bits in 6:5, DPS in 29, and the
	// formats begin at 128 (NVM Command Set Specification, Identify Namespace).
	n := &namespace{id: id, blocks: binary.LittleEndian.Uint64(d), lbaFormat: d[26]&0xf | d[26]>>5&0x3<<4, protection: d[29]}
	for i := range min(int(d[25])+1, most) {
		f := d[formats+i*formatSize:]
		n.formats = append(n.formats, lbaFormat{number: uint8(i), metadata: binary.LittleEndian.Uint16(f), shift: f[2]})
	}
	if int(n.lbaFormat) >= len(n.formats) {
		return nil, fmt.Errorf("identify namespace %d: it has LBA format %d of %d", id, n.lbaFormat, len(n.formats))
	}
	if shift := n.current().shift; id != everyNamespace && (shift < 9 || shift > 20 || n.blocks == 0 || n.blocks > 1<<63>>shift) {
		return nil, fmt.Errorf("identify namespace %d: it has %d blocks of 2^%d bytes", id, n.blocks, shift)
	}
	return n, nil
}

// plain returns the LBA format without metadata to format with: the present one, or the first that is available.
func (n *namespace) plain() (lbaFormat, error) {
	if n.current().metadata == 0 {
		return n.current(), nil
	}
	for _, f := range n.formats {
		if f.metadata == 0 && f.shift >= 9 {
			return f, nil
		}
	}
	return lbaFormat{}, fmt.Errorf("namespace %d has no LBA format without metadata", n.id)
}

// firmwareSlotCount is how many slots a controller can have.
const firmwareSlotCount = 7

// firmwareSlots returns the firmware slot information log: the revisions by their slots, the active slot, and the one that
// a reset activates, 0 for none.
func firmwareSlots(c nvmeController) (revisions map[int]string, active, next int, err error) {
	const size = 512
	data := make([]byte, size)
	// The number of dwords, less one, is in bits 31:16.
	command := &nvmeCommand{opcode: adminGetLogPage, nsid: everyNamespace, cdw10: logFirmwareSlots | (size/4-1)<<16, data: data}
	if _, err := c.admin(command); err != nil {
		return nil, 0, 0, fmt.Errorf("read the firmware slots: %w", err)
	}
	revisions = map[int]string{}
	for i := 1; i <= firmwareSlotCount; i++ {
		if r := text(data[i*8 : i*8+8]); r != "" {
			revisions[i] = r
		}
	}
	return revisions, int(data[0] & 0x7), int(data[0] >> 4 & 0x7), nil
}

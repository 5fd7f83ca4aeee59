package sysfstest

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Sizes of configuration space, and of the header that the kernel saves before
// a reset and writes back after it.
const (
	conventionalSize = 256
	expressSize      = 4096
	headerSize       = 64
)

// Ids of capabilities and extended capabilities (include/uapi/linux/pci_regs.h).
const (
	capPM      = 0x01
	capMSI     = 0x05
	capExpress = 0x10
	capMSIX    = 0x11
	capAF      = 0x13

	extAER   = 0x01
	extDSN   = 0x03
	extACS   = 0x0d
	extATS   = 0x0f
	extSRIOV = 0x10
	extPRI   = 0x13
	extPASID = 0x1b
	extDPC   = 0x1d
)

// A space is a configuration space being built: the registers, and where the
// last capability of each chain left its pointer to the next one.
type space struct {
	data    []byte
	next    int // where the next capability goes
	pointer int // the byte that has to point to it
	ext     int // where the next extended capability goes
	last    int // the extended capability before it, 0 for none
}

func (s *space) u8(at int, v uint8)   { s.data[at] = v }
func (s *space) u16(at int, v uint16) { binary.LittleEndian.PutUint16(s.data[at:], v) }
func (s *space) u32(at int, v uint32) { binary.LittleEndian.PutUint32(s.data[at:], v) }

// capability appends a capability of size bytes and returns where it is.
func (s *space) capability(id uint8, size int) int {
	at := s.next
	s.u8(s.pointer, uint8(at))
	s.u8(at, id)
	s.pointer = at + 1
	s.next += (size + 3) &^ 3
	return at
}

// extended appends an extended capability of size bytes and returns where it is.
func (s *space) extended(id uint16, size int) int {
	at := s.ext
	if s.last != 0 {
		s.u16(s.last+2, uint16(at)<<4|1)
	}
	s.u16(at, id)
	s.u16(at+2, 1) // version 1, no next one
	s.last = at
	s.ext += (size + 3) &^ 3
	return at
}

// pristine returns the configuration space as the function has it after a reset.
func (f *function) pristine() []byte {
	size := conventionalSize
	if f.Capabilities.Express != nil {
		size = expressSize
	}
	s := &space{data: make([]byte, size), next: headerSize, pointer: 0x34, ext: conventionalSize}
	f.header(s)
	f.standard(s)
	if f.Capabilities.Express != nil {
		f.enhanced(s)
		f.virtualization(s)
	}
	return s.data
}

// header fills the first 64 bytes. A VF has ffff for vendor and device: its
// real ids are the PF's vendor and SR-IOV capability (SR-IOV 3.4.1.1).
func (f *function) header(s *space) {
	s.u16(0x00, uint16(f.Vendor))
	s.u16(0x02, uint16(f.Device))
	if f.pf != nil {
		s.u32(0x00, 0xffff_ffff)
	}
	s.u16(0x04, 0x0006) // memory space and bus master
	s.u16(0x06, 0x0010) // there is a list of capabilities
	s.u32(0x08, uint32(f.Class)<<8|uint32(f.Revision))
	if f.multi {
		s.u8(0x0e, 0x80)
	}
	if b := f.bridge; b != nil {
		s.u8(0x0e, s.data[0x0e]|0x01)
		s.u8(0x18, f.Address.Bus)
		s.u8(0x19, b.secondary)
		s.u8(0x1a, b.subordinate)
		return
	}
	s.u16(0x2c, uint16(f.SubVendor))
	s.u16(0x2e, uint16(f.SubDevice))
	if f.pf == nil {
		f.bases(s)
	}
}

// bases fills the base address registers; those of a VF read zero.
func (f *function) bases(s *space) {
	for _, b := range f.BARs {
		if b.Index > 5 {
			continue
		}
		start, _ := f.place(b)
		at := 0x10 + 4*b.Index
		s.u32(at, uint32(start)|barFlags(b))
		if b.Is64 && b.Index < 5 {
			s.u32(at+4, uint32(start>>32))
		}
	}
}

// barFlags returns the low bits of a base address register.
func barFlags(b device.BAR) uint32 {
	if b.IO {
		return 1
	}
	var flags uint32
	if b.Is64 {
		flags |= 4
	}
	if b.Prefetchable {
		flags |= 8
	}
	return flags
}

// standard appends the capabilities of the first 256 bytes.
func (f *function) standard(s *space) {
	c := f.Capabilities
	if c.Power != nil {
		at := s.capability(capPM, 8)
		control := uint16(c.Power.State)
		if c.Power.NoSoftReset {
			control |= 0x0008
		}
		s.u16(at+4, control)
	}
	if c.MSI {
		s.capability(capMSI, 24)
	}
	if c.MSIX {
		s.capability(capMSIX, 12)
	}
	if c.AFFLR {
		at := s.capability(capAF, 6)
		s.u8(at+2, 6)
		s.u8(at+3, 0x03) // transactions pending, FLR
	}
	if c.Express != nil {
		at := s.capability(capExpress, 60)
		s.u16(at+2, uint16(c.Express.Type)<<4|2)
		if c.Express.FLR {
			s.u32(at+4, 1<<28)
		}
		if c.Express.HotPlug {
			s.u16(at+2, uint16(c.Express.Type)<<4|0x0100|2)
			s.u16(at+0x14, 0x0040)
		}
	}
}

// enhanced appends the extended capabilities without SR-IOV.
func (f *function) enhanced(s *space) {
	c := f.Capabilities
	if c.AER {
		s.extended(extAER, 0x48)
	}
	if n := serial(c.Serial); n != 0 {
		at := s.extended(extDSN, 12)
		s.u32(at+4, uint32(n))
		s.u32(at+8, uint32(n>>32))
	}
	if c.ACS != nil {
		at := s.extended(extACS, 8)
		s.u16(at+4, c.ACS.Capability)
		s.u16(at+6, c.ACS.Control)
	}
	if c.ATS != nil {
		at := s.extended(extATS, 8)
		s.u16(at+6, enabled(c.ATS, 0x8000))
	}
	if c.PRI != nil {
		at := s.extended(extPRI, 16)
		s.u16(at+4, enabled(c.PRI, 0x0001))
	}
	if c.PASID != nil {
		at := s.extended(extPASID, 8)
		s.u16(at+6, enabled(c.PASID, 0x0001))
	}
	if c.DPC != nil {
		at := s.extended(extDPC, 0x30)
		s.u16(at+6, enabled(c.DPC, 0x0001))
	}
}

// serial parses a serial number as lspci prints it, 0 for none.
func serial(text string) uint64 {
	n, _ := strconv.ParseUint(strings.ReplaceAll(text, "-", ""), 16, 64)
	return n
}

// virtualization appends the SR-IOV capability.
func (f *function) virtualization(s *space) {
	v := f.Capabilities.SRIOV
	if v == nil {
		return
	}
	offset, stride := f.spacing()
	at := s.extended(extSRIOV, 0x40)
	if f.numVFs > 0 {
		s.u16(at+0x08, 0x0009) // VFs and their memory are enabled
	}
	s.u16(at+0x0c, v.TotalVFs)
	s.u16(at+0x0e, v.TotalVFs)
	s.u16(at+0x10, uint16(f.numVFs))
	s.u16(at+0x14, uint16(offset))
	s.u16(at+0x16, uint16(stride))
	s.u16(at+0x1a, uint16(v.VFDevice))
}

// enabled returns the bit where the capability is switched on.
func enabled(s *pci.Switchable, bit uint16) uint16 {
	if s.Enabled {
		return bit
	}
	return 0
}

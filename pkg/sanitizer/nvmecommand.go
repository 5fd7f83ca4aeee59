package sanitizer

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Opcodes of admin commands and of commands of the NVM command set (enum nvme_admin_opcode and nvme_opcode in
// include/linux/nvme.h).
const (
	adminGetLogPage  = 0x02
	adminIdentify    = 0x06
	adminNSManage    = 0x0d
	adminNSAttach    = 0x15
	adminFormat      = 0x80
	nvmFlush         = 0x00
	nvmWrite         = 0x01
	nvmRead          = 0x02
	nvmWriteZeroes   = 0x08
	everyNamespace   = 0xffffffff
	logFirmwareSlots = 0x03
)

// nvmeCommand is one command. The data goes to the controller or comes from it, as the opcode says.
type nvmeCommand struct {
	opcode                     uint8
	nsid                       uint32
	cdw10, cdw11, cdw12, cdw13 uint32
	data                       []byte
	timeout                    time.Duration // 0 is the kernel's default
}

// nvmeController is a controller and its namespaces. Errors are a [*statusError] if the controller refuses.
type nvmeController interface {
	// admin executes an admin command, and returns dword 0 of its completion.
	admin(c *nvmeCommand) (uint32, error)
	// io executes a command of the NVM command set on the namespace that it names.
	io(c *nvmeCommand) error
	// rescan lets the kernel look for namespaces that came or went.
	rescan() error
}

// statusError is the status with which a controller completes a command that it refuses.
type statusError struct {
	what   string
	status uint16
}

// meaning explains statuses that a sanitizer meets (NVM Express Base Specification 2.0, 4.2.3; enum in
// include/linux/nvme.h). Bits 10:0 are the type and the code.
func (e *statusError) meaning() string {
	switch e.status & 0x7ff {
	case 0x001:
		return "invalid opcode"
	case 0x002:
		return "invalid field in the command"
	case 0x006:
		return "internal error"
	case 0x00b:
		return "invalid namespace or format"
	case 0x00c:
		return "command sequence error"
	case 0x015:
		return "operation denied"
	case 0x020:
		return "the namespace is write-protected"
	case 0x080:
		return "LBA out of range"
	case 0x083:
		return "reservation conflict"
	case 0x084:
		return "a format is in progress"
	case 0x10a:
		return "invalid format"
	case 0x115:
		return "not enough capacity for the namespace"
	case 0x280:
		return "write fault"
	case 0x281:
		return "unrecovered read error"
	case 0x286:
		return "access denied: the drive is locked"
	}
	return "see the NVM Express Base Specification"
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: the controller refuses with status 0x%x (%s)", e.what, e.status&0x7ff, e.meaning())
}

// Requests of ioctl(2) (include/uapi/linux/nvme_ioctl.h): _IOWR('N', n, struct nvme_passthru_cmd) and _IO('N', n) in the
// encoding of include/uapi/asm-generic/ioctl.h, which amd64 and arm64 have.
const (
	passthruSize     = 72
	ioctlAdmin       = 3<<30 | passthruSize<<16 | 'N'<<8 | 0x41
	ioctlIO          = 3<<30 | passthruSize<<16 | 'N'<<8 | 0x43
	ioctlRescan      = 'N'<<8 | 0x46
	mostMilliseconds = 1<<32 - 1
)

// passthru is struct nvme_passthru_cmd of include/uapi/linux/nvme_ioctl.h.
type passthru struct {
	opcode, flags                                  uint8
	_                                              uint16
	nsid, _, _                                     uint32
	metadata, addr                                 uint64
	metadataLen, dataLen                           uint32
	cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, msec uint32
	result                                         uint32
}

// execute gives a command to the kernel by the descriptor of a controller or a namespace.
func (c *nvmeCommand) execute(fd int, request uint) (uint32, error) {
	p := passthru{
		opcode: c.opcode, nsid: c.nsid, cdw10: c.cdw10, cdw11: c.cdw11, cdw12: c.cdw12, cdw13: c.cdw13,
		dataLen: uint32(len(c.data)), msec: uint32(min(max(c.timeout.Milliseconds(), 0), mostMilliseconds)),
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	if len(c.data) > 0 {
		// The ioctl's argument has the address as a number, which keeps no memory alive.
		pin.Pin(&c.data[0])
		p.addr = uint64(uintptr(unsafe.Pointer(&c.data[0])))
	}
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(&p)))
	switch {
	case errors.Is(errno, unix.EACCES) || errors.Is(errno, unix.EPERM):
		return 0, fmt.Errorf("NVMe command 0x%02x: %w; it needs the capability SYS_ADMIN", c.opcode, errno)
	case errno != 0:
		return 0, fmt.Errorf("NVMe command 0x%02x: %w", c.opcode, errno)
	// The kernel returns the command's NVMe status as a positive number.
	case status != 0:
		return 0, &statusError{what: fmt.Sprintf("NVMe command 0x%02x", c.opcode), status: uint16(status)}
	}
	return p.result, nil
}

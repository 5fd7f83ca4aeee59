package control

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// WriteError says that the kernel refused a write, or that it could not be
// begun because the attribute can't be opened.
type WriteError struct {
	// Path is the attribute below the root, "/sys/...".
	Path string
	// Value is what was written.
	Value string
	// Err is the kernel's answer, a [unix.Errno] unless the Writer is not the
	// kernel.
	Err error
}

// Error says what was written where, the kernel's answer, and what the answer
// means for this attribute where that is known.
func (e *WriteError) Error() string {
	text := fmt.Sprintf("write %q to %s: %v", e.Value, e.Path, e.Err)
	if hint := e.hint(); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// Unwrap returns the kernel's answer, for errors.Is with a [unix.Errno].
func (e *WriteError) Unwrap() error { return e.Err }

// hint returns what the answer means: first as the attribute's own store
// function gives it, then as any attribute would.
func (e *WriteError) hint() string {
	var errno unix.Errno
	if !errors.As(e.Err, &errno) {
		return ""
	}
	if hint := attributeHint(path.Base(e.Path), errno); hint != "" {
		return hint
	}
	switch errno {
	case unix.EROFS:
		return "/sys is read-only: mount it read-write into this container, or run it privileged"
	case unix.EACCES, unix.EPERM:
		return "run as root with the host's /sys"
	case unix.ENOENT:
		return "the function is gone, or the kernel does not have this attribute for it"
	case unix.ENODEV:
		return "the function is gone"
	}
	return ""
}

// attributeHint returns what errno means when the attribute's own store
// function answers with it: drivers/base/bus.c, drivers/pci/{iov,pci,pci-sysfs}.c.
func attributeHint(name string, errno unix.Errno) string {
	switch name {
	case "unbind":
		return unbindHint(errno)
	case "drivers_probe":
		return probeHint(errno)
	case "reset":
		return resetHint(errno)
	case "reset_method":
		return resetMethodHint(errno)
	case "sriov_numvfs":
		return numVFsHint(errno)
	}
	return ""
}

func unbindHint(errno unix.Errno) string {
	switch errno {
	case unix.ENODEV:
		return "the function is not bound to this driver any more, or it is gone"
	case unix.ENOENT:
		return "this driver is not loaded"
	}
	return ""
}

func probeHint(errno unix.Errno) string {
	switch errno {
	case unix.ENODEV:
		return "there is no such function any more"
	case unix.EINVAL:
		return "a VFIO user holds the function's IOMMU group, so that a host driver can't join it"
	}
	return ""
}

func resetHint(errno unix.Errno) string {
	switch errno {
	case unix.ENOTTY:
		return "the function does not support the reset method after all"
	case unix.EAGAIN, unix.EBUSY:
		return "another function that the reset would touch is busy"
	}
	return ""
}

func resetMethodHint(errno unix.Errno) string {
	if errno == unix.EINVAL {
		return "the function does not offer this reset method"
	}
	return ""
}

func numVFsHint(errno unix.Errno) string {
	switch errno {
	case unix.EBUSY:
		return "VFs are enabled already: disable them by writing 0 first"
	case unix.ERANGE:
		return "more than the PF's sriov_totalvfs"
	case unix.ENOENT:
		return "the PF's driver does not configure SR-IOV, or the PF has none"
	}
	return ""
}

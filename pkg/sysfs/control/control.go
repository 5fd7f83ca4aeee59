// Package control is the only code that writes to sysfs. It changes drivers of functions, resets functions, and sets
// the number of VFs. Its callers decide what to write, and must verify the effect, because several of these attributes
// accept a write and do nothing.
//
// A write to these attributes runs kernel work in the caller's context and may take seconds or forever: unbinding a
// function whose VFIO device is open waits until the holder closes it, and no signal ends the wait
// (drivers/vfio/vfio_main.c, vfio_unregister_group_dev). So each write has its own goroutine and a deadline. After the
// deadline the caller gets a [StuckError], the goroutine stays in the kernel, and the function is fenced: nothing more
// is written for it until the kernel returns. Other functions are not affected.
//
// The attributes are described in the kernel's Documentation/ABI/testing/sysfs-bus-pci.
package control

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Writer writes one attribute: it writes data by one write(2) to a file that exists. It may block as long as the kernel
// does. The path is relative to the node's root: "sys/bus/pci/drivers_probe". [RootWriter] implements it; other
// implementations are for tests.
type Writer interface {
	Write(file string, data []byte) error
}

// Reader reads one attribute without its trailing newline. The path is as for [Writer]. If the file does not exist, the
// error matches [fs.ErrNotExist]. *sysfs.FS implements it.
type Reader interface {
	ReadString(file string) (string, error)
}

// Control writes to the kernel. Its methods return nil if the kernel accepted the write, a [*WriteError] if it refused, and a [*StuckError] if it did
// not answer in time. If the context ended before the write began, nothing was written, and the error wraps the
// context's cause. All methods may be repeated.
type Control struct {
	w     Writer
	r     Reader
	limit time.Duration

	mu sync.Mutex // guards stuck and resets
	// stuck are the operations past their deadline, each with a channel that is closed when the kernel answers.
	stuck map[*StuckError]chan struct{}
	// resets are the resets whose callers were interrupted, until the next call takes their results.
	resets map[resetID]*reset
}

// NumVFsLimit is how long a change of a PF's number of VFs may take if the limit for other writes is shorter. The
// kernel creates the VFs one by one: mlx5 takes 25 seconds for 127.
const NumVFsLimit = 2 * time.Minute

// New returns a Control that writes through w. Through r it reads the lists that it must restore after a reset. It
// waits for a write until the end of the context, but no longer than limit. The limit is six times as long for a reset,
// and at least [NumVFsLimit] for the number of VFs. With limit 0, only the context counts.
func New(w Writer, r Reader, limit time.Duration) *Control {
	return &Control{w: w, r: r, limit: limit, stuck: map[*StuckError]chan struct{}{}, resets: map[resetID]*reset{}}
}

// An Attribute is one write: the function that it concerns, the path, and the value.
type Attribute struct {
	function pci.Address
	path     string
	value    string
}

// DriverOverride names the only driver that may bind a, regardless of the ID tables of drivers. "" clears the override:
// the kernel clears it on "\n" and ignores an empty write. The override does not change the present driver, and does
// not survive a reboot or the function's removal.
func DriverOverride(a pci.Address, driver string) Attribute {
	value := driver
	if value == "" {
		value = "\n"
	}
	return Attribute{a, device(a, "driver_override"), value}
}

// Unbind unbinds a from driver. ENODEV means that a is not bound to it. The kernel removes a's driver link first and
// then waits for the driver to release a: after a [*StuckError] the link does not exist, although the driver still has
// a.
func Unbind(a pci.Address, driver string) Attribute {
	return Attribute{a, "sys/bus/pci/drivers/" + driver + "/unbind", a.String()}
}

// Probe offers a to the driver that driver_override names, or without one to each driver whose id table matches. The
// kernel also reports success if a is bound already, no driver matched, or the driver's probe failed, so the caller must
// check the driver link afterwards. EINVAL means that a's IOMMU group belongs to a VFIO user, and a host driver can't
// join it.
func Probe(a pci.Address) Attribute {
	return Attribute{a, "sys/bus/pci/drivers_probe", a.String()}
}

// NumVFs enables n VFs on the PF, or disables all of them when n is 0. The
// kernel refuses to go from one number to another (EBUSY), more than
// sriov_totalvfs (ERANGE) and a PF without a driver that does SR-IOV (ENOENT).
// Its write takes up to [NumVFsLimit].
func NumVFs(pf pci.Address, n int) Attribute {
	return Attribute{pf, device(pf, "sriov_numvfs"), strconv.Itoa(n)}
}

// Autoprobe sets whether host drivers may take the PF's VFs without a driver_override. It applies to later probes and
// unbinds nothing.
func Autoprobe(pf pci.Address, on bool) Attribute {
	value := "0"
	if on {
		value = "1"
	}
	return Attribute{pf, device(pf, "sriov_drivers_autoprobe"), value}
}

// Enable gives a the resources of its BARs and turns on its memory decoding (drivers/pci/pci-sysfs.c enable_store), so
// that a program can map its memory. EBUSY means that a driver is bound to a.
func Enable(a pci.Address) Attribute { return Attribute{a, device(a, "enable"), "1"} }

// ROM sets whether reads of the attribute rom return the contents of a's expansion ROM; without it they fail
// (Documentation/PCI/sysfs-pci.rst).
func ROM(a pci.Address, on bool) Attribute {
	value := "0"
	if on {
		value = "1"
	}
	return Attribute{a, device(a, "rom"), value}
}

// XeAdmin returns the directory in which driver xe has the values of a PF's n-th VF, counted from 1
// (Documentation/ABI/testing/sysfs-driver-intel-xe-sriov).
func XeAdmin(pf pci.Address, n int) string { return device(pf, fmt.Sprintf("sriov_admin/vf%d", n)) }

// XeValue sets one value of the VF a in the directory that [XeAdmin] names. EINVAL means that the value is malformed, EPERM that
// the hardware does not have it, and EIO that the firmware refuses it.
func XeValue(a pci.Address, admin, name, value string) Attribute {
	return Attribute{a, admin + "/profile/" + name, value}
}

// XeStop stops at once what the VF a executes. The stop lasts until the VF's next FLR.
func XeStop(a pci.Address, admin string) Attribute { return Attribute{a, admin + "/stop", "1"} }

// VGPUType sets the vGPU type of a VF on NVIDIA's driver; 0 frees the vGPU. The driver refuses a type that does not fit beside the
// other vGPUs of the GPU. The write may wait for the GPU's lock.
func VGPUType(vf pci.Address, name, id string) Attribute {
	return Attribute{vf, device(vf, "nvidia/"+name), id}
}

// device returns the path of a function's attribute.
func device(a pci.Address, name string) string {
	return fmt.Sprintf("sys/bus/pci/devices/%s/%s", a, name)
}

// WriteError is the error for a write that the kernel refused, or for an attribute that can't be opened.
type WriteError struct {
	// Path is the attribute below the root, "/sys/...".
	Path string
	// Value is the written value.
	Value string
	// Err is the kernel's answer: a [unix.Errno], unless the Writer is a test's.
	Err error
}

// Error returns the written value, the path, the kernel's answer and, if known, its meaning for this attribute.
func (e *WriteError) Error() string {
	text := fmt.Sprintf("write %q to %s: %v", e.Value, e.Path, e.Err)
	if hint := e.hint(); hint != "" {
		text += " (" + hint + ")"
	}
	return text
}

// Unwrap returns the kernel's answer, for errors.Is with a [unix.Errno].
func (e *WriteError) Unwrap() error { return e.Err }

// hint explains the kernel's answer. It first looks for a meaning that only this attribute's store function has, and
// then for the meaning that the error has for every attribute.
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
		return "the function no longer exists, or the kernel has no such attribute for it"
	case unix.ENODEV:
		return "the function no longer exists"
	}
	return ""
}

// attributeHint explains errno if the attribute's own store function returns it: drivers/base/bus.c,
// drivers/pci/{iov,pci,pci-sysfs}.c.
func attributeHint(name string, errno unix.Errno) string {
	switch name {
	case "unbind":
		return unbindHint(errno)
	case "drivers_probe":
		return probeHint(errno)
	case "enable":
		return enableHint(errno)
	case "reset":
		return resetHint(errno)
	case "reset_method":
		return resetMethodHint(errno)
	case "sriov_numvfs":
		return numVFsHint(errno)
	case "current_vgpu_type":
		return vgpuTypeHint(errno)
	case "exec_quantum_ms", "preempt_timeout_us", "sched_priority", "vram_quota":
		return xeHint(errno)
	}
	return ""
}

func unbindHint(errno unix.Errno) string {
	switch errno {
	case unix.ENODEV:
		return "the function is no longer bound to this driver, or no longer exists"
	case unix.ENOENT:
		return "this driver is not loaded"
	}
	return ""
}

func probeHint(errno unix.Errno) string {
	switch errno {
	case unix.ENODEV:
		return "the function no longer exists"
	case unix.EINVAL:
		return "a VFIO user has the function's IOMMU group open, so a host driver can't bind to it"
	}
	return ""
}

func enableHint(errno unix.Errno) string {
	if errno == unix.EBUSY {
		return "a driver is bound to the function, unbind it first"
	}
	return ""
}

func resetHint(errno unix.Errno) string {
	switch errno {
	case unix.ENOTTY:
		return "the function does not support the reset method"
	case unix.EAGAIN, unix.EBUSY:
		return "another function that the reset would touch is busy"
	}
	return ""
}

func resetMethodHint(errno unix.Errno) string {
	if errno == unix.EINVAL {
		return "the function does not list this reset method"
	}
	return ""
}

func vgpuTypeHint(errno unix.Errno) string {
	switch errno {
	case unix.EIO:
		return "NVIDIA's driver failed: a MIG-backed type needs a GPU instance; the kernel's log says more"
	case unix.EPERM, unix.EBUSY:
		return "a VM still has the vGPU"
	case unix.EINVAL:
		return "the type does not fit beside the other vGPUs of the GPU"
	}
	return ""
}

// xeHint explains what Documentation/ABI/testing/sysfs-driver-intel-xe-sriov says of the errors.
func xeHint(errno unix.Errno) string {
	switch errno {
	case unix.EINVAL:
		return "driver xe does not take this value: choose another in gpuSlices in the node config"
	case unix.EPERM:
		return "this GPU does not let driver xe change the value: leave it out of gpuSlices in the node config"
	case unix.EIO:
		return "the GPU's firmware refuses the value; the kernel's log says more: choose a smaller one in gpuSlices in the node config, or leave it out"
	}
	return ""
}

func numVFsHint(errno unix.Errno) string {
	switch errno {
	case unix.EBUSY:
		return "VFs are already enabled: write 0 first to disable them"
	case unix.ERANGE:
		return "the count exceeds the PF's sriov_totalvfs"
	case unix.ENOENT:
		return "the PF or its driver does not support SR-IOV"
	}
	return ""
}

//go:build lab

package badday_test

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestUnbindHangs unbinds a function while its VFIO device is open, which the kernel does not finish before it is
// closed. The write is given up in time, the function fenced, and the rest of the node works on.
func TestUnbindHangs(t *testing.T) {
	kernel.Bind(t, topology.GPU0, "vfio-pci")
	w, err := control.NewWriter("/")
	must(t, err)
	t.Cleanup(func() { _ = w.Close() })
	const limit = 2 * time.Second
	c, a := control.New(w, openFS(t), limit), stage.Address(t, topology.GPU0)
	release := openDevice(t, topology.GPU0)
	t.Cleanup(release)

	begin := time.Now()
	err = c.Write(t.Context(), control.Unbind(a, "vfio-pci"))
	var stuck *control.StuckError
	if took := time.Since(begin); !errors.As(err, &stuck) || stuck.Address != a || took < limit || took > 3*limit {
		t.Fatalf("Unbind = %v after %s; want a StuckError after %s", err, took, limit)
	}
	t.Log(err)
	begin = time.Now()
	err = c.Write(t.Context(), control.DriverOverride(a, ""))
	if took := time.Since(begin); !errors.As(err, &stuck) || took > limit/2 {
		t.Errorf("a write to the fenced function: %v after %s; want a StuckError at once", err, took)
	}
	if all := c.Stuck(); len(all) != 1 || all[0].Address != a {
		t.Errorf("Stuck = %v", all)
	}
	scanComesBack(t, limit)
	worksMeanwhile(t)

	release()
	if err := c.Settle(t.Context(), a); err != nil {
		t.Errorf("after the device was closed: %v", err)
	}
	if all := c.Stuck(); len(all) != 0 {
		t.Errorf("after the device was closed, Stuck = %v", all)
	}
	must(t, c.Write(t.Context(), control.Probe(a))) // back to vfio-pci, for kernel.Bind's way back
}

// scanComesBack checks that the function's device lock, which the hanging unbind holds, does not hold up a scan of the
// node for long, whether or not the kernel takes it for what a scan reads.
func scanComesBack(t *testing.T, limit time.Duration) {
	t.Helper()
	begin := time.Now()
	f := stage.Function(t, stage.Scan(t), topology.GPU0)
	if took := time.Since(begin); took > 3*limit || f.Driver != "" {
		t.Errorf("the scan took %s and has %s on driver %q; want it to come back and say that there is none", took, f.Address, f.Driver)
	}
	t.Logf("%s is locked for readers: %t", f.Address, f.Locked)
}

// worksMeanwhile prepares and unprepares another device.
func worksMeanwhile(t *testing.T) {
	t.Helper()
	n := stage.Open(t, stage.Config())
	if _, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU2)); err != nil {
		t.Errorf("another device, meanwhile: %v", err)
	}
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Errorf("another device, meanwhile: %v", err)
	}
}

// openDevice opens a function's VFIO device and returns what closes it, once.
func openDevice(t *testing.T, address string) (release func()) {
	t.Helper()
	var fds []int
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatalf("open %s: %v", path, err)
		}
		fds = append(fds, fd)
		return fd
	}
	if kernel.Variant(t) == image.IOMMUFD {
		open(vfioNode(t, address))
	} else {
		container := open("/dev/vfio/vfio")
		group := open(vfioNode(t, address))
		fds = append(fds, deviceOf(t, container, group, address))
	}
	return func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // nothing was written
		}
		fds = nil
	}
}

// Requests of include/uapi/linux/vfio.h.
const (
	vfioSetIOMMU          = 0x3b66
	vfioGroupSetContainer = 0x3b68
	vfioGroupGetDevice    = 0x3b6a
	vfioType1v2           = 3
)

// deviceOf opens a device of a group the old way, by a container.
func deviceOf(t *testing.T, container, group int, address string) int {
	t.Helper()
	fd := binary.NativeEndian.AppendUint32(nil, uint32(container))
	ioctl(t, group, vfioGroupSetContainer, uintptr(unsafe.Pointer(&fd[0])))
	ioctl(t, container, vfioSetIOMMU, vfioType1v2)
	name := append([]byte(address), 0)
	return ioctl(t, group, vfioGroupGetDevice, uintptr(unsafe.Pointer(&name[0])))
}

func ioctl(t *testing.T, fd int, request, arg uintptr) int {
	t.Helper()
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, arg)
	if errno != 0 {
		t.Fatalf("ioctl %#x: %v", request, errno)
	}
	return int(n)
}

// TestHeldByVFIOAlready keeps an open device from being taken for free: a claim on a function that a process has open
// through VFIO is refused with the process's name. The process is another one than the test's: a plugin has groups open
// itself while it resets their functions, so its own descriptors do not count.
func TestHeldByVFIOAlready(t *testing.T) {
	kernel.Bind(t, topology.GPU0, "vfio-pci")
	letGo := hold(t, exec.CommandContext(t.Context(), "sh", "-c", `exec 3<>"$0" && echo held && read word`, vfioNode(t, topology.GPU0)))
	n := stage.Open(t, stage.Config())
	_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0))
	stage.Says(t, err, topology.GPU0, "in use by sh (pid ", "stop it")
	letGo()
	if _, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0)); err != nil {
		t.Error(err)
	}
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Error(err)
	}
}

// vfioNode is the node by which processes use a function: its device's, or its group's where devices have none.
func vfioNode(t *testing.T, address string) string {
	t.Helper()
	if kernel.Variant(t) == image.IOMMUFD {
		return filepath.Join("/dev/vfio/devices", kernel.CDev(t, address))
	}
	return filepath.Join("/dev/vfio", kernel.Group(t, address))
}

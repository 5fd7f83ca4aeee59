//go:build lab

package vfio

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

func address(t *testing.T, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A GPU and its audio function are behind one port: they are reset together or
// not at all.
func TestLabHotReset(t *testing.T) {
	fs := openRoot(t)
	gpu, audio := address(t, topology.GPU1), address(t, topology.GPU1Audio)
	node.Bind(t, topology.GPU1, "vfio-pci")
	node.Bind(t, topology.GPU1Audio, "vfio-pci")

	err := resetTogether(t.Context(), fs, []pci.Address{gpu})
	var foreign *ForeignError
	if !errors.As(err, &foreign) || !slices.Equal(foreign.Foreign, []pci.Address{audio}) {
		t.Errorf("a reset of the GPU alone: %v, want a ForeignError with %v", err, audio)
	}

	if err := resetTogether(t.Context(), fs, []pci.Address{audio, gpu}); err != nil {
		t.Fatalf("a reset of both: %v", err)
	}
	for _, a := range []pci.Address{gpu, audio} {
		if config, err := fs.ConfigSpace(a); err != nil || pci.Dead(config, false) {
			t.Errorf("%v after the reset: %v, dead %v", a, err, pci.Dead(config, false))
		}
	}
}

// hold opens a function through VFIO as a VMM does.
func hold(t *testing.T, a pci.Address) (group int, release func()) {
	t.Helper()
	fs := openRoot(t)
	group, ok, err := fs.GroupNumber(a)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	x, err := Exclude(t.Context(), fs, []pci.Address{a})
	if err != nil {
		t.Fatal(err)
	}
	release = func() {
		x.c.close()
		x.End()
	}
	t.Cleanup(release)
	if err := x.c.openContainer(); err != nil {
		t.Fatal(err)
	}
	if err := x.c.join(x.c.groups[group]); err != nil {
		t.Fatal(err)
	}
	if _, err := ioctl(x.c.fd, setIOMMU, type1v2); err != nil {
		t.Fatal(err)
	}
	if _, err := x.c.openDevice(a, group); err != nil {
		t.Fatal(err)
	}
	return group, release
}

func TestLabHolders(t *testing.T) {
	fs := openRoot(t)
	gpu := address(t, topology.GPU0)
	node.Bind(t, topology.GPU0, "vfio-pci")
	group, release := hold(t, gpu)

	found, err := Holders(t.Context(), fs, []string{GroupNode(group)})
	if err != nil || len(found) != 1 || found[0].PID != os.Getpid() || found[0].Node != GroupNode(group) {
		t.Errorf("holders: %v, %v; want this process", found, err)
	}
	f := &device.Function{Address: gpu, Group: &group}
	if open, err := Opened(t.Context(), fs, f); err != nil || open != GroupNode(group) {
		t.Errorf("the kernel says that %q is open, %v", open, err)
	}
	if err := resetTogether(t.Context(), fs, []pci.Address{gpu}); !errors.Is(err, ErrBusy) {
		t.Errorf("a reset of what is held: %v, want ErrBusy", err)
	}
	release()
	if found, err := Holders(t.Context(), fs, []string{GroupNode(group)}); err != nil || found != nil {
		t.Errorf("holders after the release: %v, %v", found, err)
	}
	if open, err := Opened(t.Context(), fs, f); err != nil || open != "" {
		t.Errorf("after the release the kernel says that %q is open, %v", open, err)
	}
}

// TestLabHiddenHolders: no process hides a group that it has open. The kernel always says that it is open, and proc
// shows who has it, unless the descriptor is in flight.
func TestLabHiddenHolders(t *testing.T) {
	fs := openRoot(t)
	gpu := address(t, topology.GPU0)
	node.Bind(t, topology.GPU0, "vfio-pci")
	group, ok, err := fs.GroupNumber(gpu)
	if err != nil || !ok {
		t.Fatal(group, ok, err)
	}
	t.Setenv("HOSTILE_NODE", GroupNode(group))
	f := &device.Function{Address: gpu, Group: &group}
	for how, shown := range map[string]bool{
		"a first thread that has ended": true, "a thread with a table of its own": true, "a descriptor in flight": false,
	} {
		t.Run(how, func(t *testing.T) {
			pid, _ := start(t, how)
			found, err := Holders(t.Context(), fs, []string{GroupNode(group)})
			if is := len(found) == 1 && found[0].PID == pid; err != nil || is != shown {
				t.Errorf("holders %v, %v; want process %d among them: %t", found, err, pid, shown)
			}
			if open, err := Opened(t.Context(), fs, f); err != nil || open != GroupNode(group) {
				t.Errorf("the kernel says that %q is open, %v", open, err)
			}
			if x, err := Exclude(t.Context(), fs, []pci.Address{gpu}); !errors.Is(err, ErrBusy) {
				t.Errorf("excluded %+v, %v; want ErrBusy", x, err)
			}
		})
	}
	x, err := Exclude(t.Context(), fs, []pci.Address{gpu})
	if err != nil {
		t.Fatalf("when all have ended: %v", err)
	}
	if _, err := unix.Open(GroupNode(group), unix.O_RDWR|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("somebody opens it: %v, want EBUSY", err)
	}
	x.End()
}

// A container may have the node under any name.
func TestLabHolderUnderAnotherName(t *testing.T) {
	fs := openRoot(t)
	node.Bind(t, topology.GPU0, "vfio-pci")
	group, _, err := fs.GroupNumber(address(t, topology.GPU0))
	if err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(GroupNode(group), &stat); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "gpu")
	if err := unix.Mknod(other, unix.S_IFCHR|0o600, int(stat.Rdev)); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(other, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	found, err := Holders(t.Context(), fs, []string{GroupNode(group)})
	if err != nil || len(found) != 1 || found[0].Node != GroupNode(group) {
		t.Errorf("holders: %v, %v; want this process with the node's usual name", found, err)
	}
}

// A descriptor that only names the node is not a holder, neither for Prepare nor for the
// audit.
func TestLabPathIsNoHolder(t *testing.T) {
	fs := openRoot(t)
	node.Bind(t, topology.GPU0, "vfio-pci")
	group, _, err := fs.GroupNumber(address(t, topology.GPU0))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(GroupNode(group), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if found, err := Holders(t.Context(), fs, []string{GroupNode(group)}); err != nil || found != nil {
		t.Errorf("holders: %v, %v; want none", found, err)
	}
	if used, err := Usages(t.Context(), fs); err != nil || used != nil {
		t.Errorf("usages: %+v, %v; want none", used, err)
	}
}

// While an unbind waits for a holder, the kernel holds the function's device
// lock. Some kernels show some attributes under that lock; a scan must come to
// its end with all of them.
func TestLabScanDuringUnbind(t *testing.T) {
	fs := openRoot(t)
	gpu := address(t, topology.GPU0)
	node.Bind(t, topology.GPU0, "vfio-pci")
	_, release := hold(t, gpu)

	unbound := make(chan error, 1)
	go func() {
		file, err := os.OpenFile("/sys/bus/pci/drivers/vfio-pci/unbind", os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteString(gpu.String())
			_ = file.Close()
		}
		unbound <- err
	}()
	// The driver's link goes before the wait for the holder begins.
	node.Eventually(t, "the GPU loses its driver", time.Minute, func() bool { return node.Driver(t, topology.GPU0) == "" })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	snap, err := inventory.Scan(ctx, fs)
	if err != nil {
		t.Fatal(err)
	}
	f, ok := snap.Function(gpu)
	if !ok || f.Driver != "" || !f.Locked && f.DriverOverride != "vfio-pci" {
		t.Errorf("the GPU while it is being unbound: %+v", f)
	}
	select {
	case err := <-unbound:
		t.Fatalf("the unbind did not wait for the holder: %v", err)
	default:
	}
	release()
	if err := <-unbound; err != nil {
		t.Errorf("unbind: %v", err)
	}
}

// A disk that is claimed, through its partition or as a whole, is not free.
func TestLabClaimed(t *testing.T) {
	fs := openRoot(t)
	snap, err := inventory.Scan(t.Context(), fs)
	if err != nil {
		t.Fatal(err)
	}
	free, ok := snap.Function(address(t, topology.NVMe0))
	if !ok {
		t.Fatalf("no %s", topology.NVMe0)
	}
	if holder, err := Claimed(t.Context(), fs, free); err != nil || holder != "" {
		t.Errorf("%s of %v is claimed, %v; want none", holder, free.Address, err)
	}
	claimed := 0
	for i := range snap.Functions { // the machine's own disks are virtio
		holder, err := Claimed(t.Context(), fs, &snap.Functions[i])
		if err != nil {
			t.Error(err)
		}
		if holder != "" {
			claimed++
		}
	}
	if claimed == 0 {
		t.Error("no disk of the machine is claimed, although it runs from them")
	}
}

func TestLabWait(t *testing.T) {
	fs := openRoot(t)
	h, end := sleeper(t, fs)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error)
	go func() { done <- Wait(ctx, fs, []Holder{h}) }()
	end()
	if err := <-done; err != nil {
		t.Errorf("process %d has ended: %v", h.PID, err)
	}
}

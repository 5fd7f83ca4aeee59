//go:build lab

package claims_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestHiddenHolderKeepsItsDevice: a VM's process has passed its open group on in a socket when its pod ends. No process
// shows that, and the kernel says it: the device is neither reset nor unbound before the descriptor is closed.
func TestHiddenHolderKeepsItsDevice(t *testing.T) {
	n := open(t, nil)
	mustPrepare(t, n, stage.Request(t, "hidden", topology.GPU3))
	place, err := os.Readlink("/sys/bus/pci/devices/" + topology.GPU3 + "/iommu_group")
	if err != nil {
		t.Fatal(err)
	}
	group, err := unix.Open("/dev/vfio/"+filepath.Base(place), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(group), nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(group)
	before := stage.Bindings(t)
	release, err := n.Preparer.Unprepare(context.WithoutCancel(t.Context()), "hidden")
	if used, ok := errors.AsType[*effects.InUseError](err); !ok || used.Open == "" || len(release.Proofs) > 0 {
		t.Errorf("with the group open: %d resets, %v; want it in use", len(release.Proofs), err)
	}
	if now := stage.Bindings(t); now[topology.GPU3] != before[topology.GPU3] {
		t.Errorf("it is on %v, was on %v", now[topology.GPU3], before[topology.GPU3])
	}
	_ = unix.Close(pair[0])
	_ = unix.Close(pair[1]) // drops what is in flight
	for range 50 {
		if _, err = n.Preparer.Unprepare(context.WithoutCancel(t.Context()), "hidden"); !effects.IsUse(err) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("after it was closed: %v", err)
	}
}

// longPathAt names the directory in which this program is a process with an open file of a long path.
const longPathAt = "LONG_PATH_AT"

// TestLongPathProcess is that process.
func TestLongPathProcess(t *testing.T) {
	at := os.Getenv(longPathAt)
	if at == "" {
		return
	}
	dir, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY, 0)
	for range 25 {
		if err == nil {
			err = unix.Mkdirat(dir, strings.Repeat("d", 200), 0o755)
		}
		if err == nil {
			dir, err = unix.Openat(dir, strings.Repeat("d", 200), unix.O_PATH|unix.O_DIRECTORY, 0)
		}
	}
	if err == nil {
		_, err = unix.Openat(dir, "f", unix.O_CREAT|unix.O_RDWR, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(at, "ready"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
}

// TestLongPathStopsNobody: a process of user nobody, without capabilities, has a file open whose path is longer than the
// kernel says.
func TestLongPathStopsNobody(t *testing.T) {
	n := open(t, nil)
	mustPrepare(t, n, stage.Request(t, "running", topology.GPU0))
	at, err := os.MkdirTemp("/tmp", "long")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(at) }()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(at, "program")
	if err := errors.Join(os.Chmod(at, 0o777), os.WriteFile(program, self, 0o755)); err != nil { //nolint:gosec // another user runs it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestLongPathProcess$")
	cmd.Dir, cmd.Env = at, []string{longPathAt + "=" + at}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	for range 600 {
		if _, err = os.Stat(filepath.Join(at, "ready")); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	mustUnprepare(t, n, "running")
	mustPrepare(t, n, stage.Request(t, "new", topology.GPU3))
	mustUnprepare(t, n, "new")
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bootVariable says what becomes of a VM in a keeper of these tests.
	bootVariable = "RUNCVM_TEST_BOOT"
	// vmPIDFile has the process ID of what such a keeper runs in the place of QEMU.
	vmPIDFile = "vm.pid"
)

// TestMain lets startKeeper start this binary as the keeper of a VM that is a process and nothing more.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != keeperCommand {
		os.Exit(m.Run())
	}
	err := keep(context.Background(), os.NewFile(readyFD, "ready"), vm{dir: os.Args[2]}.pretend)
	if err != nil {
		fmt.Fprintln(os.Stderr, "keeper:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// pretend starts a process as the VM's, with the descriptors that QEMU would get.
func (v vm) pretend(context.Context) (func(context.Context) error, error) {
	switch os.Getenv(bootVariable) {
	case "error":
		return nil, errors.New("no IOMMU group")
	case "death":
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(2)
	}
	cmd := exec.Command("sleep", "60") // longer than startKeeper waits
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end := func(context.Context) error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return nil
	}
	return end, os.WriteFile(v.file(vmPIDFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// running tells whether the process of a file runs. One that has ended is not, even if nobody has waited for it.
func running(t *testing.T, path string) bool {
	t.Helper()
	pid, err := strconv.Atoi(readText(t, path))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ended, err := awaitEnd(fd, 0)
	if err != nil {
		t.Fatal(err)
	}
	return !ended
}

func forKeeper(t *testing.T, boot string) vm {
	t.Helper()
	t.Setenv(bootVariable, boot)
	v := node{vms: t.TempDir(), patience: patience{boot: 10 * time.Second, asked: long, killed: long}}.vm("s1")
	if err := v.make(nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.stop(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// TestKeeperTellsThatItsVMRuns fails if the VM's process holds the keeper's pipe: then startKeeper hears the pipe's end
// only when that process has ended.
func TestKeeperTellsThatItsVMRuns(t *testing.T) {
	v := forKeeper(t, "process")
	if err := startKeeper(v); err != nil {
		t.Fatal(err)
	}
	if !running(t, v.file(vmPIDFile)) {
		t.Error("the VM's process does not run, though its keeper says so")
	}
	if !running(t, v.file(pidFile)) {
		t.Error("the keeper does not run, though its VM was up")
	}
	kept := filepath.Join(t.TempDir(), vmPIDFile) // stop removes the VM's
	if err := os.Link(v.file(vmPIDFile), kept); err != nil {
		t.Fatal(err)
	}
	if err := v.stop(); err != nil {
		t.Fatal(err)
	}
	if running(t, kept) {
		t.Error("the VM's process outlives its keeper")
	}
}

func TestKeeperTellsWhyItsVMDoesNotRun(t *testing.T) {
	for boot, want := range map[string]string{
		"error": "no IOMMU group",
		"death": "the VM's keeper ended: out of memory",
	} {
		t.Run(boot, func(t *testing.T) {
			v := forKeeper(t, boot)
			if err := startKeeper(v); err == nil || err.Error() != want {
				t.Errorf("startKeeper: %v; want %q", err, want)
			}
		})
	}
}

// inherited is a pipe whose writing end children would get, as descriptor 3 of a keeper is.
func inherited(t *testing.T) (ready, tell *os.File) {
	t.Helper()
	ready, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(ready.Close(), tell.Close()) }) // a test may have closed them
	if _, err := unix.FcntlInt(tell.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	return ready, tell
}

func TestKeepRunsTheVMUntilItIsToldToEnd(t *testing.T) {
	ready, tell := inherited(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped := make(chan error, 1)
	boot := func(ctx context.Context) (func(context.Context) error, error) {
		if flags, err := unix.FcntlInt(tell.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("the VM's process would hold the pipe (flags %#x, %v)", flags, err)
		}
		return func(ctx context.Context) error {
			stopped <- ctx.Err()
			return errors.New("stopped badly")
		}, nil
	}
	kept := make(chan error, 1)
	go func() { kept <- keep(ctx, tell, boot) }()
	if said, err := io.ReadAll(ready); err != nil || string(said) != good {
		t.Fatalf("the keeper said %q, %v", said, err)
	}
	select {
	case <-stopped:
		t.Error("the VM was ended though nobody asked for it")
	default:
	}
	cancel()
	if err := <-kept; err == nil || err.Error() != "stopped badly" {
		t.Errorf("keep: %v; want how the VM's end went", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("the VM was ended under a context that was over: %v", err)
	}
}

func TestKeepEndsAVMThatNobodyWaitsFor(t *testing.T) {
	ready, tell := inherited(t)
	if err := ready.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	ended := false
	err := keep(ctx, tell, func(context.Context) (func(context.Context) error, error) {
		return func(context.Context) error { ended = true; return nil }, nil
	})
	if !errors.Is(err, syscall.EPIPE) || !ended || ctx.Err() != nil {
		t.Errorf("keep: %v, VM ended: %t, waited: %v; want a broken pipe and the VM's end at once", err, ended, ctx.Err())
	}
}

func TestBootWithoutAnEndIsGivenUp(t *testing.T) {
	ready, _ := inherited(t)
	err := vm{patience: patience{boot: 10 * time.Millisecond}}.awaitBoot(ready)
	if want := "the VM is not up after 10ms"; err == nil || err.Error() != want {
		t.Errorf("awaitBoot: %v; want %q", err, want)
	}
}

package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// parentVariable makes this test's program a parent that starts a child and waits to be killed.
const parentVariable = "KATA_VFIO_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) == "" {
		os.Exit(m.Run())
	}
	p, err := process.Start(exec.CommandContext(context.Background(), "sleep", "600"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	<-p.Done()
}

// gone waits until there is no such process, or only what nobody has waited for. It ends one that stays.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the test has failed already
			t.Fatalf("process %d is still there: %s", pid, stat)
		}
	}
}

func TestChildEndsWithAKilledParent(t *testing.T) {
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=yes")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child %d does not run: %v", child, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	gone(t, child)
}

// start runs a shell with a child of its own and returns the shell and that child's process ID.
func start(t *testing.T, ctx context.Context) (*process.Process, int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 600 & echo $!; wait")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = out
	p, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return p, grandchild
}

func TestKillEndsTheWholeGroup(t *testing.T) {
	p, grandchild := start(t, t.Context())
	p.Kill()
	p.Kill()
	gone(t, grandchild)
	if p.Err() == nil {
		t.Error("a killed child's end is not an error")
	}
}

func TestContextEndsTheWholeGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, grandchild := start(t, ctx)
	if err := p.Err(); err != nil {
		t.Fatalf("a running child has ended by %v", err)
	}
	cancel()
	<-p.Done()
	gone(t, grandchild)
}

func TestRunTellsHowTheChildEnded(t *testing.T) {
	err := process.Run(exec.CommandContext(t.Context(), "sh", "-c", "exit 3"))
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 3 {
		t.Errorf("an exit with 3 is %v", err)
	}
	if err := process.Run(exec.CommandContext(t.Context(), "true")); err != nil {
		t.Error(err)
	}
	if err := process.Run(exec.CommandContext(t.Context(), "/nowhere/at/all")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a command that is not there is %v", err)
	}
}

func TestRunKeepsSysProcAttr(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "readlink", "/proc/self/ns/mnt")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var out strings.Builder
	cmd.Stdout = &out
	if err := process.Run(cmd); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got == own || !strings.HasPrefix(got, "mnt:") {
		t.Errorf("the child's mount namespace is %s, ours is %s", got, own)
	}
}

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// long is more than any test takes.
const long = time.Minute

// startProcess starts a shell script that says on its output when it is ready to be ended.
func startProcess(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // for a test that has failed; an ended one is none
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the process said %q: %v", line, err)
	}
	return cmd
}

// keptBy makes the VM of sandbox s1 with that process as its keeper.
func keptBy(t *testing.T, n node, keeper string) {
	t.Helper()
	v := n.vm("s1")
	if err := v.make(nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.file(pidFile), []byte(keeper), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDeleteEndsTheKeeperAndRemovesTheVM(t *testing.T) {
	for name, test := range map[string]struct {
		script   string
		patience patience
		want     syscall.Signal
	}{
		"a keeper that is asked": {`echo; exec sleep 60`, patience{asked: long, killed: long}, syscall.SIGTERM},
		"a keeper that ignores SIGTERM is killed": {
			`trap "" TERM; echo; exec sleep 60`, patience{asked: 50 * time.Millisecond, killed: long}, syscall.SIGKILL,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := node{vms: t.TempDir(), patience: test.patience}
			cmd := startProcess(t, test.script)
			keptBy(t, n, strconv.Itoa(cmd.Process.Pid))
			if err := n.handle(t.Context(), call{command: "delete", id: "s1"}); err != nil {
				t.Fatal(err)
			}
			wantNone(t, filepath.Join(n.vms, "s1"))
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) {
				t.Fatalf("the keeper ended: %v", err)
			}
			if got := exit.Sys().(syscall.WaitStatus).Signal(); got != test.want {
				t.Errorf("the keeper ended by %v; want %v", got, test.want)
			}
		})
	}
}

func TestDeleteOfAVMWhoseKeeperHasEnded(t *testing.T) {
	n := node{vms: t.TempDir(), patience: patience{asked: long, killed: long}}
	cmd := startProcess(t, "echo")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	keptBy(t, n, strconv.Itoa(cmd.Process.Pid))
	for range 2 { // a second deletion is not an error
		if err := n.handle(t.Context(), call{command: "delete", id: "s1"}); err != nil {
			t.Fatal(err)
		}
		wantNone(t, filepath.Join(n.vms, "s1"))
	}
}

// TestDeleteTouchesNoOthersVM: containerd deletes containers too, by IDs that no VM has.
func TestDeleteTouchesNoOthersVM(t *testing.T) {
	n := withVM(t, cdev0)
	for _, id := range []string{"c1", ""} {
		if err := n.handle(t.Context(), call{command: "delete", id: id}); err != nil {
			t.Errorf("delete %q: %v", id, err)
		}
	}
	if _, err := n.vm("s1").devices(); err != nil {
		t.Error(err)
	}
}

func TestDeleteOfAVMWithoutAKeeper(t *testing.T) {
	n := withVM(t, cdev0)
	if err := n.handle(t.Context(), call{command: "delete", id: "s1"}); err != nil {
		t.Fatal(err)
	}
	wantNone(t, filepath.Join(n.vms, "s1"))
}

// TestVMWhoseKeeperIsUnknownIsNotForgotten: the devices are in use as long as the keeper may run.
func TestVMWhoseKeeperIsUnknownIsNotForgotten(t *testing.T) {
	for _, pid := range []string{"", "x", "-1", "0"} {
		n := node{vms: t.TempDir()}
		keptBy(t, n, pid)
		if err := n.handle(t.Context(), call{command: "delete", id: "s1"}); err == nil {
			t.Errorf("a keeper's number of %q is good enough", pid)
		}
		if _, err := n.vm("s1").devices(); err != nil {
			t.Errorf("keeper %q: %v", pid, err)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// enter runs this program in the mount namespace of the node's first process if --enter-node is set, and returns its result. That
// namespace has the node's files, tools and init sockets at their own paths; a pod that mounts the node's root has them at others. The
// blueprint is usually a file in the pod: enter opens it first, and passes it as standard input. This process stays in the container's
// namespace, because `kubectl exec` and probes enter the namespaces of the container's first process.
func (o *options) enter(cmd *cobra.Command, args []string) error {
	switch {
	case o.entered && o.blueprint != "":
		o.blueprint = "-"
		return nil
	case o.entered, !o.enterNode:
		return nil
	}
	if o.root != "/" {
		return command.Usagef("--enter-node works on the node itself: remove --root")
	}
	if o.blueprint != "" {
		if err := becomeInput(o.blueprint); err != nil {
			return command.Usagef("read the blueprint: %w", err)
		}
	}
	return asEnded(inNode(cmd.Context(), entered(args)))
}

// asEnded returns the result of a program that ended in the node with an error, or with nil. It is never nil, because that program did
// everything.
func asEnded(err error) error {
	ended, started := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return &codeError{}
	case !started:
		return fmt.Errorf("enter the node: %w", err)
	case ended.Exited():
		return &codeError{code: ended.ExitCode()} // it printed the reason
	}
	return fmt.Errorf("the program in the node was ended: %w; run it again: it completes what was interrupted", ended)
}

// becomeInput makes a file the standard input. "-" is the standard input already.
func becomeInput(name string) error {
	if name == "-" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	// The program in the node inherits the descriptor. The path of the file does not exist there.
	return unix.Dup3(int(f.Fd()), 0, 0)
}

// enteredFlag says that the program is in the node already, and that a blueprint is its standard input, whatever its flags name: a flag
// that takes one file, such as --blueprint, refuses a second one.
const enteredFlag = "entered"

// entered returns the arguments of the program in the node.
func entered(args []string) []string {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	return slices.Insert(slices.Clone(args), end, "--"+enteredFlag)
}

// endLimit is how long a program may take to end after SIGTERM: a running apply completes first.
const endLimit = time.Minute

// inNode runs this program in the mount namespace of process 1. It sends SIGTERM when ctx ends.
func inNode(ctx context.Context, args []string) error {
	node, err := os.Open("/proc/1/ns/mnt")
	if err != nil {
		return fmt.Errorf("%w; run it in a privileged pod with hostPID: true", err)
	}
	defer node.Close() //nolint:errcheck // it is only entered
	if err := isElsewhere(node); err != nil {
		return err
	}
	// The node has no such program at the path of this one, but an open file can be executed in any mount namespace.
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close() //nolint:errcheck // it is only executed
	// setns(2) requires a thread that shares its root and working directory with no other. Its children inherit the namespace. The
	// thread stays locked, so it runs nothing else afterwards.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(node.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("%w; run it in a privileged pod", err)
	}
	child := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", self.Fd()))
	child.Args, child.Stdin, child.Stdout, child.Stderr = args, os.Stdin, os.Stdout, os.Stderr
	// If this process is killed, the kernel ends the child: it sends the signal when the thread ends that started the child
	// (PR_SET_PDEATHSIG(2const)), which is the locked one.
	child.Dir, child.SysProcAttr = "/", &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = endLimit
	err = child.Run()
	if child.ProcessState != nil && child.ProcessState.Success() {
		return nil // also after SIGTERM
	}
	return err
}

// isElsewhere refuses a namespace that this process is already in, as in a container without hostPID.
func isElsewhere(node *os.File) error {
	there, err := node.Stat()
	if err != nil {
		return err
	}
	here, err := os.Stat("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if os.SameFile(there, here) {
		return errors.New("process 1 has the same mount namespace as this process: set hostPID: true in the pod, or remove --enter-node on the node itself")
	}
	return nil
}

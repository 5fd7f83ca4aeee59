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

// enter has this program run in the mount namespace of the node's first process, if that is asked for, and then returns how it ended
// there. There are the node's files, its tools and its init's sockets, which a pod that mounts the node's root elsewhere has by wrong
// paths. The blueprint is a file of the pod's as a rule: it is opened before, and is the standard input there. This process stays where
// it is: who enters a container (`kubectl exec`, probes) enters the namespaces of its first process.
func (o *options) enter(cmd *cobra.Command, args []string) error {
	if !o.enterNode {
		return nil
	}
	if o.root != "/" {
		return command.Usagef("--enter-node works on the node itself: leave --root out")
	}
	if o.blueprint != "" {
		if err := becomeInput(o.blueprint); err != nil {
			return command.Usagef("read the blueprint: %w", err)
		}
	}
	err := inNode(cmd.Context(), entered(args, o.blueprint != ""))
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return &codeError{code: ended.ExitCode()} // it has said why
	}
	if err != nil {
		return fmt.Errorf("enter the node: %w", err)
	}
	return &codeError{} // all is done, and nothing is to be done here
}

// becomeInput makes a file the standard input, "-" being that already.
func becomeInput(name string) error {
	if name == "-" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return unix.Dup3(int(f.Fd()), 0, 0)
}

// entered are the arguments of the program that is in the node: of a flag that is given twice the last one counts.
func entered(args []string, blueprint bool) []string {
	further := []string{"--enter-node=false"}
	if blueprint {
		further = append(further, "--blueprint=-")
	}
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	return slices.Insert(slices.Clone(args), end, further...)
}

// endLimit is how long a program may take to end when it is asked to: a running apply is finished first.
const endLimit = time.Minute

// inNode runs this program in the mount namespace of process 1, and passes on that it is to end.
func inNode(ctx context.Context, args []string) error {
	node, err := os.Open("/proc/1/ns/mnt")
	if err != nil {
		return fmt.Errorf("%w; the pod has to be privileged, with hostPID", err)
	}
	defer node.Close() //nolint:errcheck // it is only entered
	if err := isElsewhere(node); err != nil {
		return err
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close() //nolint:errcheck // it is only executed
	// A thread of its own root and working directory may change its mount namespace (setns(2)), and what it starts is in there. It
	// serves nothing else afterwards.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(node.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("%w; the pod has to be privileged", err)
	}
	child := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", self.Fd()))
	child.Args, child.Stdin, child.Stdout, child.Stderr = args, os.Stdin, os.Stdout, os.Stderr
	child.Dir, child.SysProcAttr = "/", &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = endLimit
	err = child.Run()
	if child.ProcessState != nil && child.ProcessState.Success() {
		return nil // also when it was told to end
	}
	return err
}

// isElsewhere refuses the namespace that this process is in: that of a container which takes itself for process 1, too.
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
		return errors.New("process 1 is in the mount namespace of this one: a pod needs hostPID, and on the node itself leave --enter-node out")
	}
	return nil
}

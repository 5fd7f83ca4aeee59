// Package process runs children that do not outlive this process, even if it is killed.
package process

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// outputGrace is how long output is read after a child's end where a grandchild still holds the other end.
const outputGrace = 5 * time.Second

// Process is a running child. Its methods may be called from several goroutines.
type Process struct {
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
}

// Start starts a command of exec.CommandContext in a process group of its own. The child ends with the command's
// context, by Kill, and with this process: the kernel sends it SIGKILL when the thread that started it ends, so one
// thread is kept for each child. The first two ends take its group along; the last does not. What else the command's
// SysProcAttr asks for, such as a root, holds.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = outputGrace
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Run is Start and the wait for the end.
func Run(cmd *exec.Cmd) error {
	p, err := Start(cmd)
	if err != nil {
		return err
	}
	<-p.Done()
	return p.Err()
}

// PID is the child's process ID.
func (p *Process) PID() int { return p.pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the child ended, as exec.Cmd.Wait tells it, and nil before Done is closed.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Kill ends the child's group with SIGKILL and waits for the child's end. It may be called again.
func (p *Process) Kill() {
	select {
	case <-p.done: // its number may be another's by now
	default:
		_ = killGroup(p.pid) // it may be ending by itself
		<-p.done
	}
}

func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

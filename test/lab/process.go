package lab

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a running QEMU.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
	hung error         // why it was ended, if a watch did; under the machine's lock
}

// startProcess starts a command that ends with ctx and with this process, even if that is killed: the kernel sends
// the signal when the thread that started the command ends, so one thread is kept for it.
func startProcess(ctx context.Context, argv, env []string, log *os.File) (*process, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &process{done: make(chan struct{})}
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
	return p, <-started
}

// kill ends the process and waits for its end.
func (p *process) kill() {
	select {
	case <-p.done: // its number may be another's by now
	default:
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may be ending by itself
		<-p.done
	}
}

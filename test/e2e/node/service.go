package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/kata-vfio/kata-vfio/test/internal/tail"
	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

const (
	// path is where the node's programs find each other: containerd its shim.
	path = Dir + "/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// pidDir has a file for each service, made by the shell that becomes the service.
	pidDir = "/run/node"
)

// service is a long-running command of the machine. It ends with its connection, and so with this process.
type service struct {
	args []string
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
	told bool          // to end; under the node's lock
}

// Command prepares a command in the machine that finds the node's programs; see lab.Machine.Command.
func (n *Node) Command(ctx context.Context, name string, args ...string) *remote.Command {
	cmd := n.machine.Command(ctx, name, args...)
	// The daemons are written in Go, whose garbage collector costs more than memory here.
	cmd.Env = append(cmd.Env, "PATH="+path, "GOGC=400")
	return cmd
}

// LogFile is the log of a service on this host, such as "kubelet" or "containerd": it outlives the machine and ends
// with Stop. A service that is started again adds to it.
func (n *Node) LogFile(service string) string { return filepath.Join(n.dir, service+".log") }

// StartService starts a long-running command under a name that no running service has. It returns before the command has run.
// Lost reports the command's end.
func (n *Node) StartService(name string, args ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old, ok := n.services[name]; ok && !old.ended() {
		return fmt.Errorf("start service %s: it is running", name)
	}
	log, err := os.OpenFile(n.LogFile(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start service %s: %w", name, err)
	}
	s := &service{args: args, done: make(chan struct{})}
	n.services[name] = s
	const become = `mkdir -p "$(dirname "$0")" && echo $$ >"$0" && exec "$@"`
	cmd := n.Command(n.ctx, "sh", append([]string{"-c", become, pidFile(name)}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	go func() {
		s.err = errors.Join(cmd.Run(), log.Close())
		close(s.done)
	}()
	return nil
}

// StopService asks a service to end by SIGTERM, as its supervisor would, and waits until it has.
func (n *Node) StopService(ctx context.Context, name string) error {
	return n.endService(ctx, name, "TERM")
}

// CrashService kills a service and starts it again, with the same arguments, as its supervisor would.
func (n *Node) CrashService(ctx context.Context, name string) error {
	if err := n.endService(ctx, name, "KILL"); err != nil {
		return err
	}
	return n.startAgain(name)
}

func (n *Node) endService(ctx context.Context, name, signal string) error {
	s := n.tell(name)
	if s == nil {
		return fmt.Errorf("stop service %s: there is none", name)
	}
	if s.ended() {
		return nil
	}
	out, err := n.Command(ctx, "sh", "-c", `kill -s "$1" "$(cat "$0")"`, pidFile(name), signal).CombinedOutput()
	if err != nil {
		return n.explain(fmt.Errorf("stop service %s: %w: %s", name, err, bytes.TrimSpace(out)))
	}
	select {
	case <-s.done: // how is of no interest: it was told to
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of service %s: %w", name, context.Cause(ctx))
	}
}

// RestartService stops a service and starts it again, with the same arguments.
func (n *Node) RestartService(ctx context.Context, name string) error {
	if err := n.StopService(ctx, name); err != nil {
		return err
	}
	return n.startAgain(name)
}

func (n *Node) startAgain(name string) error {
	n.mu.Lock()
	args := n.services[name].args
	n.mu.Unlock()
	return n.StartService(name, args...)
}

// tell finds a service and notes that its end is wanted.
func (n *Node) tell(name string) *service {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.services[name]
	if s != nil {
		s.told = true
	}
	return s
}

func (s *service) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// servicesEnded returns an error that names the services that ended without being asked to.
func (n *Node) servicesEnded() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(n.services)) {
		s := n.services[name]
		if s.ended() && !s.told {
			how := "exit status 0"
			if s.err != nil {
				how = s.err.Error()
			}
			errs = append(errs, fmt.Errorf("service %s ended by itself: %s\n%s", name, how, tail.File(n.LogFile(name))))
		}
	}
	return errors.Join(errs...)
}

// waitServices waits for the end of all services, whose context is over.
func (n *Node) waitServices() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.services {
		<-s.done
	}
}

func pidFile(service string) string { return filepath.Join(pidDir, service+".pid") }

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// Server runs the commands that clients ask for.
type Server struct {
	// BootID is told to every client.
	BootID string
	// Env is every command's environment.
	Env []string
	// Done is called after each command, before its client hears of its end. It may be nil.
	Done func()
}

// Serve accepts clients until the listener fails or ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		go s.client(ctx, conn)
	}
}

// client serves one connection. What goes wrong with a connection is its client's to report.
func (s *Server) client(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	f := &frames{rw: conn}
	if f.sendJSON(hello, Hello{BootID: s.BootID}) != nil {
		return
	}
	var req Request
	if f.expect(request, &req) != nil {
		return
	}
	end := s.run(ctx, f, req)
	if s.Done != nil {
		s.Done()
	}
	_ = f.sendJSON(exit, end)
}

// run runs the command; the connection's end is the command's.
func (s *Server) run(ctx context.Context, f *frames, req Request) Exit {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if len(req.Args) == 0 {
		return Exit{Code: -1, Reason: "no command"}
	}
	cmd := exec.CommandContext(ctx, req.Args[0], req.Args[1:]...)
	cmd.Env, cmd.Dir = append(slices.Clip(s.Env), req.Env...), req.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A background child may keep the pipes open after the command's end.
	cmd.WaitDelay = 2 * time.Second
	cmd.Stdout, cmd.Stderr = stream{f, stdout}, stream{f, stderr}
	input, err := cmd.StdinPipe()
	if err != nil {
		return Exit{Code: -1, Reason: err.Error()}
	}
	if err := cmd.Start(); err != nil {
		return Exit{Code: -1, Reason: err.Error()}
	}
	go func() { cancel(feed(f, input)) }()
	return ended(cmd.Wait())
}

// feed passes input frames on until the connection ends, and says how it ended.
func feed(f *frames, input io.WriteCloser) error {
	for {
		k, data, err := f.receive()
		if err != nil {
			return fmt.Errorf("the client is gone: %w", err)
		}
		if k != stdin {
			return fmt.Errorf("frame of kind %q while the command runs", k)
		}
		if len(data) == 0 {
			_ = input.Close() // the command may have ended already
			continue
		}
		_, _ = input.Write(data) // the command need not read its input
	}
}

func ended(err error) Exit {
	var failed *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return Exit{}
	case errors.As(err, &failed) && failed.ExitCode() >= 0:
		return Exit{Code: failed.ExitCode()}
	default:
		return Exit{Code: -1, Reason: err.Error()}
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

const (
	// controlFile is the socket in a VM's directory that the pod's containers have the VM work by.
	controlFile = "control.sock"
	// guestDir has the programs of VMs. It is beside the directory of this program.
	guestDir = "guest"
)

// guestPrograms are the programs of a directory, which VMs have beside their own, by their paths there.
func guestPrograms(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("find the programs of VMs: %w", err)
	}
	programs := map[string]string{}
	for _, e := range entries {
		programs[filepath.Join("/bin", e.Name())] = filepath.Join(dir, e.Name())
	}
	return programs, nil
}

// nestedVM is a VM that does what it is asked to, unless it is paused.
type nestedVM interface {
	Bytes(ctx context.Context, what protocol.Bytes) ([]byte, error)
	Run(ctx context.Context, args ...string) (protocol.RunResult, error)
	Pause() error
	Resume() error
}

// asked is a VM as containers see it.
type asked struct {
	vm nestedVM
	// paused says that the VM runs only while it is asked something.
	paused bool
}

// serve answers containers, one request on each connection, until ctx ends or stop is called. When stop returns, nobody asks
// the VM anything any more.
func (v vm) serve(ctx context.Context, a *asked) (stop func() error, err error) {
	listener, err := net.Listen("unix", v.file(controlFile)) //nolint:noctx // nothing is waited for
	if err != nil {
		return nil, fmt.Errorf("serve the pod's containers: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { _ = listener.Close() }) // Accept then fails, and tells
	ended := make(chan error, 1)
	go func() { ended <- a.serve(ctx, listener) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	}), nil
}

// serve answers one connection after the other: a VM does one thing at a time. At its end the socket is closed.
func (a *asked) serve(ctx context.Context, listener net.Listener) error {
	defer listener.Close() // the end of ctx may have closed it already
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // nobody was answered on it
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve the pod's containers: %w", err)
		}
		a.answer(ctx, conn)
	}
}

// answer answers the request of a connection. A container that hangs up gets no answer.
func (a *asked) answer(ctx context.Context, conn net.Conn) {
	defer conn.Close() // the answer is complete, or nobody wants it
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var request protocol.Request
	if json.NewDecoder(conn).Decode(&request) != nil {
		return
	}
	reply, err := a.do(ctx, request)
	if err != nil {
		reply.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(reply) // see above
}

// do has the VM do something.
func (a *asked) do(ctx context.Context, r protocol.Request) (reply protocol.Reply, err error) {
	if a.paused {
		if err := a.vm.Resume(); err != nil {
			return reply, err
		}
		defer func() { err = errors.Join(err, a.vm.Pause()) }()
	}
	switch {
	case r.Bytes != nil:
		reply.Bytes, err = a.vm.Bytes(ctx, *r.Bytes)
	case r.Run != nil:
		var result protocol.RunResult
		result, err = a.vm.Run(ctx, r.Run.Args...)
		reply.Run = &result
	default:
		err = errors.New("a container can ask for bytes, or for the run of a program")
	}
	return reply, err
}

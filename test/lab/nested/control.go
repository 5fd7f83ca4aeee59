package nested

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/frames"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// control is the owner's end of the VM's control port.
type control struct {
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// connect waits for QEMU to open the port.
func (vm *VM) connect(ctx context.Context) (*control, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", vm.path("control.sock"))
		if err == nil {
			return &control{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}, nil
		}
		select {
		case <-vm.done:
			return nil, fmt.Errorf("QEMU ended: %w", orClean(vm.err))
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond): // a socket that is not there yet cannot be waited for
		}
	}
}

func (s *control) receive(ctx context.Context) (protocol.Reply, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var reply protocol.Reply
	if err := s.in.Decode(&reply); err != nil {
		return reply, errors.Join(context.Cause(ctx), fmt.Errorf("hear from the nested VM: %w", err))
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("in the nested VM: %s", reply.Error)
	}
	return reply, nil
}

func (vm *VM) ask(ctx context.Context, request protocol.Request) (protocol.Reply, error) {
	if err := vm.talk.out.Encode(request); err != nil {
		return protocol.Reply{}, vm.explain(fmt.Errorf("ask the nested VM: %w", err))
	}
	reply, err := vm.talk.receive(ctx)
	return reply, vm.explain(err)
}

// Report returns what the VM sees now.
func (vm *VM) Report(ctx context.Context) (protocol.Report, error) {
	reply, err := vm.ask(ctx, protocol.Request{Report: true})
	if err != nil {
		return protocol.Report{}, err
	}
	if reply.Report == nil {
		return protocol.Report{}, errors.New("the nested VM's reply has no report")
	}
	return *reply.Report, nil
}

// Configure brings the interface with that MAC up, gives it an IPv4 address with prefix length, and waits for its
// carrier.
func (vm *VM) Configure(ctx context.Context, mac, prefix string) error {
	_, err := vm.ask(ctx, protocol.Request{Configure: &protocol.Configure{MAC: mac, Prefix: prefix}})
	return err
}

// Run runs a program in the VM to its end.
func (vm *VM) Run(ctx context.Context, args ...string) (protocol.RunResult, error) {
	reply, err := vm.ask(ctx, protocol.Request{Run: &protocol.Run{Args: args}})
	if err != nil {
		return protocol.RunResult{}, err
	}
	if reply.Run == nil {
		return protocol.RunResult{}, errors.New("the nested VM's reply has no result")
	}
	return *reply.Run, nil
}

// Bytes writes and reads bytes of a memory BAR or a disk in the VM.
func (vm *VM) Bytes(ctx context.Context, what protocol.Bytes) ([]byte, error) {
	reply, err := vm.ask(ctx, protocol.Request{Bytes: &what})
	return reply.Bytes, err
}

// Frames sends raw frames from the VM's interface with that MAC, and returns the lab's frames that came in there since the
// last call; the first call begins to listen.
func (vm *VM) Frames(ctx context.Context, mac string, send ...frames.Frame) ([]frames.Frame, error) {
	reply, err := vm.ask(ctx, protocol.Request{Frames: &protocol.Frames{MAC: mac, Send: send}})
	return reply.Heard, err
}

// Ping sends echo requests from the VM. Requests without an answer are not error.
func (vm *VM) Ping(ctx context.Context, to string, count int) (protocol.PingResult, error) {
	return vm.PingFrom(ctx, "", to, count)
}

// PingFrom is Ping from one of the VM's addresses, which routing rules go by.
func (vm *VM) PingFrom(ctx context.Context, from, to string, count int) (protocol.PingResult, error) {
	reply, err := vm.ask(ctx, protocol.Request{Ping: &protocol.Ping{To: to, From: from, Count: count}})
	if err != nil {
		return protocol.PingResult{}, err
	}
	if reply.Ping == nil {
		return protocol.PingResult{}, errors.New("the nested VM's reply has no ping result")
	}
	return *reply.Ping, nil
}

package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Command is a command in the machine. Set its fields, then call one of Run, Output and CombinedOutput, once.
type Command struct {
	Request
	// Stdin is the command's input; nil means none.
	Stdin io.Reader
	// Stdout and Stderr take the command's output while it runs; nil drops it.
	Stdout, Stderr io.Writer

	ctx  context.Context
	addr string
}

// ExitError is a command that ran and did not end with exit status 0.
type ExitError struct {
	Exit
	// Args is the command.
	Args []string
	// Stderr is the end of the error output, where the caller did not take it: from Output.
	Stderr []byte
}

// Error says which command ended how, and quotes its error output.
func (e *ExitError) Error() string {
	how := e.Reason
	if how == "" {
		how = fmt.Sprintf("exit status %d", e.Code)
	}
	if len(e.Stderr) > 0 {
		return fmt.Sprintf("run %q: %s: %s", e.Args, how, bytes.TrimSpace(e.Stderr))
	}
	return fmt.Sprintf("run %q: %s", e.Args, how)
}

// NewCommand prepares a command for the server at addr. It is killed when ctx ends.
func NewCommand(ctx context.Context, addr string, args ...string) *Command {
	return &Command{Request: Request{Args: args}, ctx: ctx, addr: addr}
}

// Probe connects to a server and returns what it says of itself.
func Probe(ctx context.Context, addr string) (Hello, error) {
	conn, hi, err := dial(ctx, addr)
	if err != nil {
		return Hello{}, err
	}
	return hi, conn.Close()
}

func dial(ctx context.Context, addr string) (net.Conn, Hello, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, Hello{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var hi Hello
	if err := (&frames{rw: conn}).expect(hello, &hi); err != nil {
		return nil, Hello{}, errors.Join(fmt.Errorf("greet %s: %w", addr, err), context.Cause(ctx), conn.Close())
	}
	return conn, hi, nil
}

// Run runs the command to its end. A command that ended otherwise than with status 0 is an *ExitError; any other
// error means that the machine or the connection is lost, or the context's cause.
func (c *Command) Run() error {
	conn, _, err := dial(c.ctx, c.addr)
	if err != nil {
		return fmt.Errorf("run %q: %w", c.Args, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	f := &frames{rw: conn}
	if err := f.sendJSON(request, c.Request); err != nil {
		return fmt.Errorf("run %q: %w", c.Args, err)
	}
	go c.feed(f)
	end, err := c.collect(f)
	if err != nil {
		return fmt.Errorf("run %q: %w", c.Args, errors.Join(context.Cause(c.ctx), err))
	}
	if end.Code != 0 || end.Reason != "" {
		return &ExitError{Exit: end, Args: c.Args}
	}
	return nil
}

// feed sends the input. A broken connection is reported by collect.
func (c *Command) feed(f *frames) {
	if c.Stdin != nil {
		_, _ = io.Copy(stream{f, stdin}, c.Stdin)
	}
	_ = f.send(stdin, nil)
}

func (c *Command) collect(f *frames) (Exit, error) {
	for {
		k, data, err := f.receive()
		if err != nil {
			return Exit{}, err
		}
		switch k {
		case stdout:
			err = write(c.Stdout, data)
		case stderr:
			err = write(c.Stderr, data)
		case exit:
			var end Exit
			return end, json.Unmarshal(data, &end)
		default:
			err = fmt.Errorf("frame of kind %q from the server", k)
		}
		if err != nil {
			return Exit{}, err
		}
	}
}

func write(w io.Writer, data []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// Output runs the command and returns its standard output; its error output becomes part of an *ExitError.
func (c *Command) Output() ([]byte, error) {
	var out, errs bytes.Buffer
	c.Stdout = &out
	if c.Stderr == nil {
		c.Stderr = &errs
	}
	err := c.Run()
	if failed, ok := errors.AsType[*ExitError](err); ok {
		failed.Stderr = errs.Bytes()
	}
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns both outputs as they came.
func (c *Command) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command runs tools of the node in its root.
type command struct{ root string }

// searchPath replaces the caller's PATH.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Output runs a tool of the running node and returns what it prints. When ctx ends, it kills the tool and the tool's children.
func Output(ctx context.Context, argv ...string) ([]byte, error) {
	return command{root: "/"}.output(ctx, argv)
}

// Run implements [bootstrap.Runner].
func (c command) Run(ctx context.Context, argv []string) error {
	_, err := c.output(ctx, argv)
	return err
}

func (c command) output(ctx context.Context, argv []string) ([]byte, error) {
	// env looks up the tool below the root in which it is started, by the given PATH.
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{"-i", searchPath, "LC_ALL=C.UTF-8"}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = "/"
	if c.root != "/" {
		cmd.SysProcAttr.Chroot = c.root
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	// A negative number is a process group (kill(2)): the tool's children are in it, and would outlive the tool.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if err == nil {
		return said.Bytes(), nil
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return nil, fmt.Errorf("%w: %s", err, tail(said.String()))
}

// tail returns the end of a tool's output in one line.
func tail(text string) string {
	const most = 600
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if len(text) > most {
		text = "..." + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

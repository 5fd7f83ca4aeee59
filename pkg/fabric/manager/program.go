package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// mostOutput is more than any answer has: 64 partitions of 16 GPUs are 200 KB.
	mostOutput = 1 << 20
	// mostNoise is how much of the error output is kept.
	mostNoise = 1 << 10
	// lastWords is how long output is read after the program ended, because a child process may keep it open.
	lastWords = time.Second
)

// program is a program that makes one call.
type program struct {
	path string
	env  []string
}

// ended is what a program left behind that ended by itself.
type ended struct {
	code   int
	stdout []byte
	stderr string
}

// run starts the program and waits for its end. An error means that nobody knows what the program did: it could not be
// started, took too long, was killed, or said too much. run returns at the context's deadline even if the kernel does not
// let the program die.
func (p program) run(ctx context.Context, stdin []byte, args ...string) (*ended, error) {
	type result struct {
		*ended
		err error
	}
	done := make(chan result, 1)
	go func() {
		// The kernel kills the program when the thread that started it ends (PR_SET_PDEATHSIG). With the thread locked,
		// that is when this process ends. A program that survives could activate a partition after recovery has read the
		// list.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		e, err := p.wait(ctx, stdin, args)
		done <- result{e, err}
	}()
	select {
	case r := <-done:
		return r.ended, r.err
	case <-ctx.Done():
	}
	// It is being killed: what it said until now may be of use.
	select {
	case r := <-done:
		return r.ended, r.err
	case <-time.After(lastWords):
		return nil, fmt.Errorf("%s does not end after it was killed: %w", filepath.Base(p.path), context.Cause(ctx))
	}
}

func (p program) wait(ctx context.Context, stdin []byte, args []string) (*ended, error) {
	cmd := exec.CommandContext(ctx, p.path, args...)
	stdout, stderr := &bounded{most: mostOutput, ends: true}, &bounded{most: mostNoise}
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.env, "/", bytes.NewReader(stdin), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	killAll := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = killAll, lastWords
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		_ = killAll() // end its children, if any are left
	}
	name := filepath.Base(p.path)
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s was killed: %w%s", name, context.Cause(ctx), said(stderr.buf.Bytes()))
	case stdout.full: // its failure is our doing
		return nil, fmt.Errorf("the answer of %s has more than %d bytes", name, mostOutput)
	case err == nil, exited && exit.Exited():
		return &ended{code: cmd.ProcessState.ExitCode(), stdout: stdout.buf.Bytes(), stderr: said(stderr.buf.Bytes())}, nil
	}
	return nil, fmt.Errorf("run %s: %w%s", p.path, err, said(stderr.buf.Bytes()))
}

// said returns output as the end of a sentence.
func said(output []byte) string {
	text := strings.TrimSpace(string(output[:min(len(output), mostNoise)]))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (it printed %q)", text)
}

// bounded keeps the first bytes of an output. It drops the rest, or ends the program.
type bounded struct {
	buf  bytes.Buffer
	most int
	ends bool
	full bool
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - b.buf.Len()
	if b.full = b.full || len(p) > room; b.full && b.ends {
		return 0, io.ErrShortWrite
	}
	b.buf.Write(p[:min(len(p), room)])
	return len(p), nil
}

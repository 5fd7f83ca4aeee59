// Package program runs other programs, each for one answer: with a deadline, with bounded output, with an environment of their own, and
// never longer than this process lives.
package program

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
	// mostOutput is larger than any expected answer: 64 partitions of 16 GPUs are 200 KB.
	mostOutput = 1 << 20
	// mostNoise is how much of the error output is kept, and how much of any output a message shows.
	mostNoise = 1 << 10
	// lastWords is how long output is read after the program ended, because a child process may keep it open.
	lastWords = time.Second
)

// Program is a program at a path, with its complete environment: it gets nothing from the environment of this process.
type Program struct {
	Path string
	Env  []string
}

// Ended is the result of a program that ended by itself, with any exit code.
type Ended struct {
	Code int
	// Stdout is complete, and Stderr its beginning.
	Stdout, Stderr []byte
}

// NotStartedError says that the program could not be started, so it did nothing.
type NotStartedError struct {
	Path string
	Err  error
}

func (e *NotStartedError) Error() string { return "run " + e.Path + ": " + e.Err.Error() }

func (e *NotStartedError) Unwrap() error { return e.Err }

// Run starts the program and waits for its end. After an error other than a [NotStartedError] it is unknown what the program did: it took
// too long, was killed, or wrote too much. The program's children are ended with it. Run returns at the context's deadline even if the
// kernel does not let the program die; such a program is killed before it executes anything else.
func (p Program) Run(ctx context.Context, stdin []byte, args ...string) (*Ended, error) {
	type result struct {
		*Ended
		err error
	}
	done := make(chan result, 1)
	go func() {
		// The kernel kills the program when the thread that started it ends (PR_SET_PDEATHSIG). With the thread locked,
		// that is when this process ends. A program that survives could change what recovery has looked at.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		e, err := p.wait(ctx, stdin, args)
		done <- result{e, err}
	}()
	select {
	case r := <-done:
		return r.Ended, r.err
	case <-ctx.Done():
	}
	// The program is being killed. Its output so far may be useful. The pipes are read for lastWords after its end.
	select {
	case r := <-done:
		return r.Ended, r.err
	case <-time.After(2 * lastWords):
		return nil, fmt.Errorf("%s does not end after it was killed: %w", filepath.Base(p.Path), context.Cause(ctx))
	}
}

func (p Program) wait(ctx context.Context, stdin []byte, args []string) (*Ended, error) {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	stdout, stderr := &bounded{most: mostOutput, ends: true}, &bounded{most: mostNoise}
	// Without any environment, exec would pass on this process' own.
	cmd.Env = append([]string{}, p.Env...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", bytes.NewReader(stdin), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	killAll := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = killAll, lastWords
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		_ = killAll() // end its children, if any are left
	}
	name, said := filepath.Base(p.Path), Said(stderr.buf.Bytes())
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && cmd.Process == nil:
		return nil, &NotStartedError{Path: p.Path, Err: err}
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%s was killed: %w%s", name, context.Cause(ctx), said)
	case stdout.full: // its failure is our doing
		return nil, fmt.Errorf("the answer of %s has more than %d bytes", name, mostOutput)
	case err == nil, exited && exit.Exited():
		return &Ended{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.buf.Bytes(), Stderr: stderr.buf.Bytes()}, nil
	}
	return nil, fmt.Errorf("run %s: %w%s", p.Path, err, said)
}

// Said returns the beginning of an output as the end of a sentence; empty if there is nothing.
func Said(output []byte) string {
	text := strings.TrimSpace(string(Beginning(output)))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (it printed %q)", text)
}

// Beginning returns as much of an output as a message may have of it.
func Beginning(output []byte) []byte { return output[:min(len(output), mostNoise)] }

// bounded keeps the first bytes of an output. It drops the rest, or ends the program. (The buffer is not embedded, so that callers can't
// bypass Write.)
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

package podnet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	// mostResult and mostNoise limit a plugin's two outputs.
	mostResult = 1 << 20
	mostNoise  = 1 << 10
	// lastWords is how long output is read after the plugin ended, because a child process may keep it open.
	lastWords = time.Second
)

// PluginError says that a plugin failed.
type PluginError struct {
	Plugin, Command string
	// Nothing: no address was allocated, because the plugin did not run, or exited with an error. Otherwise the plugin
	// was interrupted, and the outcome is unknown.
	Nothing bool
	Err     error
}

func (e *PluginError) Error() string {
	return fmt.Sprintf("CNI plugin %s %s: %s", e.Plugin, e.Command, e.Err)
}

// Code is that of conditions and Events.
func (e *PluginError) Code() rule.Code { return rule.NoAddress }

func (e *PluginError) Unwrap() error { return e.Err }

// runner runs a plugin for package invoke. invoke's own runner does not limit the output, and leaves the plugin running
// if this process is killed.
type runner struct {
	command string
	version.PluginDecoder
}

var _ invoke.Exec = (*runner)(nil)

// FindInPath implements [invoke.Exec].
func (r *runner) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin implements [invoke.Exec]. Its error is a [PluginError]. The plugin has ended when it returns; a plugin
// that takes too long is killed.
func (r *runner) ExecPlugin(ctx context.Context, path string, config []byte, environ []string) ([]byte, error) {
	// The kernel kills the plugin when the thread that started it ends (PR_SET_PDEATHSIG). With the thread locked, that
	// is when this process ends. A plugin that survives could allocate an address after recovery has released it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path)
	stdout, stderr := &bounded{most: mostResult, ends: true}, &bounded{most: mostNoise}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(config), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	killAll := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = killAll, lastWords
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		_ = killAll() // end its children, if any are left
	}
	if err == nil {
		return stdout.buf.Bytes(), nil
	}
	failed := &PluginError{Plugin: filepath.Base(path), Command: r.command, Err: err}
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		failed.Err = fmt.Errorf("killed: %w%s", context.Cause(ctx), said(stderr.buf.String()))
	case stdout.full: // its failure is our doing
		failed.Err = fmt.Errorf("its answer has more than %d bytes", mostResult)
	case cmd.Process == nil:
		failed.Nothing = true
	case ended && exit.Exited():
		failed.Nothing, failed.Err = true, errors.New(answer(stdout.buf.Bytes(), err)+said(stderr.buf.String()))
	default:
		failed.Err = fmt.Errorf("%w%s", err, said(stderr.buf.String()))
	}
	return nil, failed
}

// answer returns a plugin's description of its failure: a CNI error, or any other output.
func answer(stdout []byte, err error) string {
	var said types.Error
	if json.Unmarshal(stdout, &said) == nil && said.Msg != "" {
		return oneLine(strings.TrimSuffix(said.Msg+"; "+said.Details, "; "))
	}
	if len(stdout) == 0 {
		return err.Error()
	}
	return fmt.Sprintf("%v, and it says %q", err, stdout[:min(len(stdout), mostNoise)])
}

// said returns a plugin's error output as the end of a sentence.
func said(stderr string) string {
	if stderr = strings.TrimSpace(stderr); stderr == "" {
		return ""
	}
	return " (it printed: " + oneLine(stderr) + ")"
}

func oneLine(text string) string {
	return strings.ReplaceAll(text[:min(len(text), mostNoise)], "\n", "; ")
}

// bounded keeps the first bytes of an output. It drops the rest, or ends the plugin. (The buffer is not embedded, so
// that callers can't bypass Write.)
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

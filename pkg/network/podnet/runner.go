package podnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/kata-vfio/kata-vfio/pkg/program"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
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

// Code returns the code for conditions and Events.
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

// ExecPlugin implements [invoke.Exec]. Its error is a [PluginError].
func (r *runner) ExecPlugin(ctx context.Context, path string, config []byte, environ []string) ([]byte, error) {
	ended, err := program.Program{Path: path, Env: environ}.Run(ctx, config)
	if err == nil && ended.Code == 0 {
		return ended.Stdout, nil
	}
	failed := &PluginError{Plugin: filepath.Base(path), Command: r.command, Err: err}
	_, failed.Nothing = errors.AsType[*program.NotStartedError](err)
	if err == nil {
		failed.Nothing, failed.Err = true, errors.New(answer(ended)+program.Said(ended.Stderr))
	}
	return nil, failed
}

// answer returns a plugin's description of its failure: a CNI error, or any other output.
func answer(e *program.Ended) string {
	var said types.Error
	status := fmt.Sprintf("exit status %d", e.Code)
	switch {
	case json.Unmarshal(e.Stdout, &said) == nil && said.Msg != "":
		return oneLine(strings.TrimSuffix(said.Msg+"; "+said.Details, "; "))
	case len(e.Stdout) == 0:
		return status
	}
	return fmt.Sprintf("%s, and it says %q", status, program.Beginning(e.Stdout))
}

func oneLine(text string) string {
	return strings.ReplaceAll(string(program.Beginning([]byte(text))), "\n", "; ")
}

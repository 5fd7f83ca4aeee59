// Package kata puts an installed Kata into the lab's node, in the place of the stand-in runcvm: the runtime as its release
// unpacks it, unmodified, and for its VMs the lab's own kernel and drivers around Kata's agent.
package kata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Runtime is one of Kata's two runtimes.
type Runtime string

// The runtimes, by the names that bootstrap's blueprint gives them.
const (
	Go   Runtime = "go"
	Rust Runtime = "rs"
)

// Dir is where a node has Kata.
const Dir = "/opt/kata"

// Places in an installation, as Kata's releases have them.
const (
	goShim     = "bin/containerd-shim-kata-v2"
	rustShim   = "runtime-rs/bin/containerd-shim-kata-v2"
	command    = "bin/kata-runtime"
	defaults   = "share/defaults/kata-containers"
	goConfig   = defaults + "/configuration-qemu.toml"
	rustConfig = defaults + "/runtime-rs/configuration-qemu-runtime-rs.toml"
	agentFile  = "bin/kata-agent"
)

// Install is an installed Kata and the runtime of it that a node uses.
type Install struct {
	// Runtime is the runtime that the node's handler has.
	Runtime Runtime
	// Version is what the runtime says of itself.
	Version string

	dir   string
	agent string
}

// Find finds a runtime in the installation below dir. The agent is a static kata-agent for the guest, which releases have
// in their guest images only; empty means bin/kata-agent below dir. The error says what is missing.
func Find(ctx context.Context, dir, agent string, runtime Runtime) (Install, error) {
	if agent == "" {
		agent = filepath.Join(dir, agentFile)
	}
	i := Install{Runtime: runtime, dir: dir, agent: agent}
	if _, err := os.Stat(agent); err != nil {
		return Install{}, fmt.Errorf("find Kata's agent: %w. Releases have it in their guest images only (/usr/bin/kata-agent): copy it out, or build it, "+
			"as a static program, and name its file by KATA_AGENT", err)
	}
	for _, file := range i.needed() {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return Install{}, fmt.Errorf("find Kata's runtime %s: %w. Unpack a release of Kata, and name the directory that has bin and share", runtime, err)
		}
	}
	var err error
	i.Version, err = i.ask(ctx)
	return i, err
}

// Has tells whether an installation has a runtime at all.
func Has(dir string, runtime Runtime) bool {
	_, err := os.Stat(filepath.Join(dir, Install{Runtime: runtime}.shim()))
	return err == nil
}

func (i Install) shim() string {
	if i.Runtime == Rust {
		return rustShim
	}
	return goShim
}

func (i Install) config() string {
	if i.Runtime == Rust {
		return rustConfig
	}
	return goConfig
}

// HandlerConfig is the directory of the handler's configuration on the node, which bootstrap makes.
func (i Install) HandlerConfig() string {
	return filepath.Join(Dir, filepath.Dir(i.config()), "kata-gpu")
}

func (i Install) needed() []string { return []string{i.shim(), i.config()} }

// ask asks the shim for its version: "... version: 4.1.0, commit: ...".
func (i Install) ask(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(i.dir, i.shim()), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask Kata's shim for its version: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Stage puts what the node needs of the installation into dir, which becomes Dir there.
func (i Install) Stage(dir string) error {
	for _, file := range append(i.needed(), command) {
		err := copyFile(filepath.Join(i.dir, file), filepath.Join(dir, file))
		if err != nil && (file != command || !errors.Is(err, os.ErrNotExist)) {
			return fmt.Errorf("stage Kata: %w", err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() // it was only read
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// Package kata puts an installed Kata into the lab's node, in the place of the stand-in runcvm: the runtime as its release
// unpacks it, unmodified, and for its VMs either the lab's own kernel and drivers around Kata's agent, or the guest that Kata's
// configuration names.
package kata

import (
	"cmp"
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

// Source says where Kata is on this host, and what of it to use.
type Source struct {
	// Dir has bin and share, as a release has them below opt/kata.
	Dir string
	// Agent is a static kata-agent for a guest of the lab's; empty means bin/kata-agent below Dir. Where neither is, VMs boot the guest that
	// the configuration names.
	Agent string
	// Config is a configuration file for one of the runtimes, in the place of the release's; empty means the release's for each.
	Config string
	// QEMU is a static QEMU that runs the VMs, such as bin/qemu-system-x86_64 of Dir; empty means the machine's, which is Debian's.
	QEMU string
}

// SourceOf reads a Source from the environment: KATA, KATA_AGENT, KATA_CONFIG and KATA_QEMU.
func SourceOf(getenv func(string) string) Source {
	return Source{Dir: getenv("KATA"), Agent: getenv("KATA_AGENT"), Config: getenv("KATA_CONFIG"), QEMU: getenv("KATA_QEMU")}
}

// Install is an installed Kata and the runtime of it that a node uses.
type Install struct {
	// Runtime is the runtime that the node's handler has.
	Runtime Runtime
	// Version is what the runtime says of itself.
	Version string

	dir    string
	base   string // its configuration, on this host
	qemu   string // a release's QEMU, on this host; empty for the machine's
	agent  string // in a guest of the lab's
	guest  guest  // its own, where there is no agent
	labOwn bool
}

// Find finds a runtime of an installation, and what its VMs boot. The error says what is missing.
func Find(ctx context.Context, source Source, runtime Runtime) (Install, error) {
	i := Install{Runtime: runtime, dir: source.Dir, base: source.Config, qemu: source.QEMU}
	if i.base == "" {
		i.base = filepath.Join(i.dir, i.config())
	}
	for _, file := range []string{filepath.Join(i.dir, i.shim()), i.base} {
		if _, err := os.Stat(file); err != nil {
			return Install{}, fmt.Errorf("find Kata's runtime %s: %w. Unpack a release of Kata, and name the directory that has bin and share", runtime, err)
		}
	}
	if err := i.findGuest(source.Agent); err != nil {
		return Install{}, err
	}
	if err := i.findQEMU(); err != nil {
		return Install{}, err
	}
	var err error
	i.Version, err = i.ask(ctx)
	return i, err
}

// findGuest prefers a guest of the lab's, which has drivers for all of the lab's devices.
func (i *Install) findGuest(agent string) error {
	i.agent, i.labOwn = cmp.Or(agent, filepath.Join(i.dir, agentFile)), true
	err := mustBeStatic(i.agent)
	if err == nil {
		return nil
	}
	if agent != "" || !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("take Kata's agent for the lab's guest: %w", err)
	}
	i.labOwn = false
	i.guest, err = readGuest(i.base, i.dir)
	return err
}

// LabsGuest reports whether VMs boot the lab's guest, with drivers for all of the lab's devices, and not Kata's own.
func (i Install) LabsGuest() bool { return i.labOwn }

// Lacks returns the reason why a source does not have a runtime, or "" if it has the runtime.
func (s Source) Lacks(runtime Runtime) string {
	if _, err := os.Stat(filepath.Join(s.Dir, Install{Runtime: runtime}.shim())); err != nil {
		return fmt.Sprintf("the installation lacks the runtime %s: %v", runtime, err)
	}
	if s.Config != "" && runtimeOf(s.Config) != runtime {
		return fmt.Sprintf("KATA_CONFIG is not for the runtime %s: %s", runtime, s.Config)
	}
	return ""
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
	files := map[string]string{i.shim(): filepath.Join(i.dir, i.shim()), i.config(): i.base}
	if program := filepath.Join(i.dir, command); i.Runtime == Go && exists(program) {
		files[command] = program
	}
	if i.qemu != "" {
		files[ownQEMU] = i.qemu
	}
	if !i.labOwn {
		files[guestKernel], files[guestRoot] = i.guest.kernel, i.guest.root()
	}
	for to, from := range files {
		if err := copyFile(from, filepath.Join(dir, to)); err != nil {
			return fmt.Errorf("stage Kata: %w", err)
		}
	}
	return i.stageFirmware(dir)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
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

package bind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// initRoot is the root of the node's first process, as one sees it who shares
// the node's PID namespace and may trace (CAP_SYS_PTRACE).
const initRoot = "/proc/1/root"

// outputGrace is how long modprobe's words are read after its end where what an
// install rule has started still holds the other end.
const outputGrace = time.Second

// Modprobe loads modules with the node's modprobe, which knows its options,
// dependencies and blacklists. From a container, whose image needs none, it runs
// in the node's root, which takes CAP_SYS_CHROOT besides CAP_SYS_MODULE.
type Modprobe struct {
	// Root is the node's root; "/" unless the plugin sees the node's files
	// elsewhere.
	Root string
}

// Load runs modprobe, and on failure returns what it printed. Loading a loaded module is not an error.
func (m Modprobe) Load(ctx context.Context, module string) error {
	cmd, err := m.command(ctx, module)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, outputGrace
	err = cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("module %s is not loaded and there is no modprobe here: load it on the node (modprobe %s)", module, module)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("run the node's modprobe: %w: give the plugin CAP_SYS_CHROOT, or load module %s on the node", err, module)
	case err != nil:
		return fmt.Errorf("modprobe %s: %w%s", module, err, said(stderr.String()))
	}
	return nil
}

// command returns the command that loads the module.
func (m Modprobe) command(ctx context.Context, module string) (*exec.Cmd, error) {
	root := m.nodeRoot()
	if root == "/" {
		return exec.CommandContext(ctx, "modprobe", "--", module), nil
	}
	program, err := kernelsModprobe(root)
	if err != nil {
		return nil, fmt.Errorf("load module %s: %w: load it on the node (modprobe %s)", module, err, module)
	}
	cmd := exec.CommandContext(ctx, program, "--", module)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/" // in the new root: the old working directory would lead out of it
	// The environment that the kernel gives it. Ours is the container's, and MODPROBE_OPTIONS must not come from
	// there.
	cmd.Env = []string{"HOME=/", "TERM=linux", "PATH=/sbin:/usr/sbin:/bin:/usr/bin"}
	return cmd, nil
}

// nodeRoot returns the directory in which modprobe finds the node's modules and
// configuration. Who can't see the first process's root has to do with its own.
func (m Modprobe) nodeRoot() string {
	if m.Root != "/" {
		return m.Root
	}
	own, ownErr := os.Stat("/")
	node, nodeErr := os.Stat(initRoot)
	if ownErr != nil || nodeErr != nil || os.SameFile(own, node) {
		return "/"
	}
	return initRoot
}

// kernelsModprobe returns the path, below root, of the program by which the
// kernel itself loads modules (sysctl kernel.modprobe): not every distribution
// has it in /sbin, and who empties it wants no module loaded unasked.
func kernelsModprobe(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/modprobe"))
	if err != nil {
		return "", fmt.Errorf("find the node's modprobe: %w", err)
	}
	program := strings.TrimSpace(string(text))
	if !filepath.IsAbs(program) {
		return "", fmt.Errorf("find the node's modprobe: sysctl kernel.modprobe is %q", program)
	}
	return program, nil
}

// said returns what modprobe has printed, as the end of a sentence.
func said(stderr string) string {
	stderr = strings.TrimSpace(stderr)
	if stderr == "" {
		return ""
	}
	return ": " + strings.ReplaceAll(stderr, "\n", "; ")
}

// registered reports whether a PCI driver of the module's name is there.
func registered(drivers []string, module string) bool {
	return slices.ContainsFunc(drivers, func(d string) bool { return device.SameDriver(d, module) })
}

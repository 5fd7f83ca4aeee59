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

// initRoot is the root directory of the node's first process, for a process that shares the node's PID namespace and
// may trace (CAP_SYS_PTRACE).
const initRoot = "/proc/1/root"

// outputGrace is how long modprobe's output is read after modprobe has ended. A process that an install rule started
// may still hold the other end of the pipe.
const outputGrace = time.Second

// Modprobe loads modules with the node's modprobe, which knows the node's options, dependencies and blacklists. In a
// container, whose image needs no modprobe, it runs in the node's root. That requires CAP_SYS_CHROOT besides
// CAP_SYS_MODULE.
type Modprobe struct {
	// Root is the node's root: "/" unless the plugin sees the node's files elsewhere.
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
	// This is the environment that the kernel gives to modprobe. The plugin's own environment is the container's, and
	// MODPROBE_OPTIONS must not come from there.
	cmd.Env = []string{"HOME=/", "TERM=linux", "PATH=/sbin:/usr/sbin:/bin:/usr/bin"}
	return cmd, nil
}

// nodeRoot returns the directory in which modprobe finds the node's modules and configuration. If the first process's
// root can't be read, the plugin uses its own.
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

// kernelsModprobe returns the path, below root, of the program by which the kernel itself loads modules (sysctl
// kernel.modprobe). Not every distribution has modprobe in /sbin. If an administrator has emptied the setting, modules
// are not to be loaded automatically, and kernelsModprobe returns an error.
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

// said returns modprobe's output as the end of a sentence.
func said(stderr string) string {
	stderr = strings.TrimSpace(stderr)
	if stderr == "" {
		return ""
	}
	return ": " + strings.ReplaceAll(stderr, "\n", "; ")
}

// registered reports whether a PCI driver with the module's name is registered.
func registered(drivers []string, module string) bool {
	return slices.ContainsFunc(drivers, func(d string) bool { return device.SameDriver(d, module) })
}

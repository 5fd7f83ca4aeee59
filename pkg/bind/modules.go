package bind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Modprobe loads modules with the node's modprobe, which knows its options,
// dependencies and blacklists.
type Modprobe struct {
	// Root is the node's root; "/" unless the plugin sees the node's files
	// elsewhere.
	Root string
}

// Load runs modprobe and returns what it printed on failure.
func (m Modprobe) Load(ctx context.Context, module string) error {
	args := []string{"--", module}
	if m.Root != "/" {
		args = append([]string{"--dirname", m.Root}, args...)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "modprobe", args...)
	cmd.Stderr = &stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("module %s is not loaded and there is no modprobe here: load it on the node (modprobe %s)", module, module)
	}
	if err != nil {
		return fmt.Errorf("modprobe %s: %w%s", module, err, said(stderr.String()))
	}
	return nil
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

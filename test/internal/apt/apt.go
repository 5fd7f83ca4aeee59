// Package apt installs on this host what a build needs, where the host is Debian or Ubuntu.
package apt

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/tail"
)

// Install installs packages without those that they only recommend. What apt-get says goes to log. It needs root; an
// error says what a person would do instead.
func Install(ctx context.Context, log io.Writer, packages ...string) error {
	args := append([]string{"install", "-y", "-q", "--no-install-recommends", waitForOthers}, packages...)
	advice := "apt-get install --no-install-recommends " + strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("the build needs what %q installs on Debian, and this host has no apt-get: %w", advice, err)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the build needs packages that only root can install: run %q with sudo, then try again", advice)
	}
	// The lists at hand may do, and fetching them takes longer than all the rest.
	if run(ctx, log, args...) == nil {
		return nil
	}
	if err := run(ctx, log, "update", "-q"); err != nil {
		return err
	}
	return run(ctx, log, args...)
}

// waitForOthers has apt-get wait for another, as tests of several packages run at once.
const waitForOthers = "-oDPkg::Lock::Timeout=600"

func run(ctx context.Context, log io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var said tail.Writer
	both := io.MultiWriter(&said, log)
	cmd.Stdout, cmd.Stderr = both, both
	if err := process.Run(cmd); err != nil {
		return fmt.Errorf("run %q: %w\n%s", cmd, err, &said)
	}
	return nil
}

package binaries

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// need is a command, or a library that pkg-config knows, that a build uses on the host, and the Debian or Ubuntu
// package that has it.
type need struct {
	command, library, pkg string
}

func runcNeeds() []need {
	return []need{
		{command: "gcc", pkg: "gcc"},
		{command: "pkg-config", pkg: "pkg-config"},
		{library: "libseccomp", pkg: "libseccomp-dev"},
	}
}

func (n need) met(ctx context.Context) bool {
	if n.command != "" {
		_, err := exec.LookPath(n.command)
		return err == nil
	}
	return exec.CommandContext(ctx, "pkg-config", "--exists", n.library).Run() == nil
}

// prepareHost installs the packages that are missing.
func (b *build) prepareHost(ctx context.Context) error {
	var missing []string
	for _, n := range b.needs {
		if !n.met(ctx) {
			missing = append(missing, n.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	args := append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing...)
	advice := "apt-get install " + strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("the build needs what %q installs on Debian, and this host has no apt-get: %w", advice, err)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the build needs packages that only root can install: run %q with sudo, then try again", advice)
	}
	b.progress.step("installing on this host: %s", strings.Join(missing, " "))
	// The lists at hand may do, and fetching them takes longer than all the rest.
	if b.apt(ctx, args...) == nil {
		return nil
	}
	if err := b.apt(ctx, "update", "-q"); err != nil {
		return err
	}
	return b.apt(ctx, args...)
}

func (b *build) apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	said := &counter{}
	both := io.MultiWriter(said, b.log)
	cmd.Stdout, cmd.Stderr = both, both
	if err := process.Run(cmd); err != nil {
		return fmt.Errorf("run %q: %w\n%s", cmd, err, said.tail())
	}
	return nil
}

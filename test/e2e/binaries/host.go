package binaries

import (
	"context"
	"os/exec"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/internal/apt"
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
	b.Progress.Step("installing on this host: %s", strings.Join(missing, " "))
	return apt.Install(ctx, b.Log, missing...)
}

package binaries

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/buildcache"
)

// progressPause is how often somebody who waits for minutes hears something.
const progressPause = 15 * time.Second

// build is one run of a recipe into a directory that nobody else sees yet.
type build struct {
	recipe
	buildcache.Build
}

func (b *build) all(ctx context.Context) error {
	if err := b.prepareHost(ctx); err != nil {
		return err
	}
	b.Progress.Step("fetching and reading the modules that %s needs", b.module)
	total, err := b.countPackages(ctx)
	if err != nil {
		return err
	}
	link, err := b.linkFlags(ctx)
	if err != nil {
		return err
	}
	if err := b.compile(ctx, total, link); err != nil {
		return err
	}
	return b.link()
}

// compile runs go build, which names each package that it compiles when it begins to, and tells from time to time
// how far that is.
func (b *build) compile(ctx context.Context, total int, link string) error {
	args := slices.Concat([]string{"build", "-v"}, b.flags(), []string{"-ldflags=" + link, "-o", b.Into + "/"}, b.packages)
	command := append([]string{"go"}, args...)
	if b.nice {
		command = append([]string{"nice"}, command...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = b.dir, b.env()
	said := &counter{}
	both := io.MultiWriter(said, b.Log)
	cmd.Stdout, cmd.Stderr = both, both
	stop := b.Progress.Every(progressPause, func() string {
		return fmt.Sprintf("compiling %s: %d of at most %d packages", b.module, said.packages(), total)
	})
	err := process.Run(cmd)
	stop()
	if err != nil {
		return fmt.Errorf("run %q: %w\n%s", cmd, err, &said.Writer)
	}
	return nil
}

// link makes the commands of a binary that acts by its name.
func (b *build) link() error {
	if b.links == "" {
		return nil
	}
	for _, command := range b.commands {
		if err := os.Symlink(b.links, filepath.Join(b.Into, command)); err != nil {
			return err
		}
	}
	return nil
}

// goOutput is what the go command says, in a directory and an environment.
func goOutput(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, env
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := process.Run(cmd); err != nil {
		return "", fmt.Errorf("run %q: %w\n%s", cmd, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

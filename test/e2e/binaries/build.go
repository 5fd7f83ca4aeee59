package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// ensure builds what is not there.
func (c cache) ensure(ctx context.Context, r recipe, out io.Writer) error {
	if built, err := c.built(); built || err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if built, err := c.built(); built || err != nil { // by another process meanwhile
		return err
	}
	return c.build(ctx, r, out)
}

// build builds beside the result's place and moves it there. The caller holds the lock.
func (c cache) build(ctx context.Context, r recipe, out io.Writer) error {
	if err := os.RemoveAll(c.working()); err != nil {
		return fmt.Errorf("remove an unfinished build: %w", err)
	}
	if err := os.MkdirAll(c.working(), 0o755); err != nil {
		return err
	}
	log, err := os.Create(c.logFile())
	if err != nil {
		return err
	}
	defer log.Close() // the build's result does not depend on its log
	p := newProgress(out)
	p.step("building %s (log: %s)", strings.Join(r.commands, ", "), log.Name())
	b := &build{recipe: r, into: c.working(), progress: p, log: log}
	if err := b.all(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w\nthe whole log: %s", err, log.Name()), os.RemoveAll(c.working()))
	}
	if err := os.Rename(c.working(), c.result()); err != nil {
		return err
	}
	p.step("built %s", c.result())
	return nil
}

// build is one run of a recipe into a directory that nobody else sees yet.
type build struct {
	recipe
	into     string
	progress *progress
	log      io.Writer
}

func (b *build) all(ctx context.Context) error {
	if err := b.prepareHost(ctx); err != nil {
		return err
	}
	b.progress.step("fetching and reading the modules that %s needs", b.module)
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
	args := slices.Concat([]string{"build", "-v"}, b.flags(), []string{"-ldflags=" + link, "-o", b.into + "/"}, b.packages)
	command := append([]string{"go"}, args...)
	if b.nice {
		command = append([]string{"nice"}, command...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = b.dir, b.env()
	said := &counter{}
	both := io.MultiWriter(said, b.log)
	cmd.Stdout, cmd.Stderr = both, both
	stop := b.progress.every(progressPause, func() string {
		return fmt.Sprintf("compiling %s: %d of at most %d packages", b.module, said.packages(), total)
	})
	err := process.Run(cmd)
	stop()
	if err != nil {
		return fmt.Errorf("run %q: %w\n%s", cmd, err, said.tail())
	}
	return nil
}

// link makes the commands of a binary that acts by its name.
func (b *build) link() error {
	if b.links == "" {
		return nil
	}
	for _, command := range b.commands {
		if err := os.Symlink(b.links, filepath.Join(b.into, command)); err != nil {
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

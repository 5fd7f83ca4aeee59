package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/internal/buildcache"
)

// RootsVariable names the environment variable that moves the cache of roots, which is kata-vfio/roots in the user's cache directory.
const RootsVariable = "KATA_VFIO_ROOTS_CACHE"

// Root returns a root of a Debian release with packages, on top of debootstrap's minbase variant, for tests that run a distribution's own
// tools. It is built where the cache has none: as root, with a network. Nobody writes to it. See [Ensure] for what else holds.
func Root(ctx context.Context, out io.Writer, suite string, packages ...string) (dir string, err error) {
	cache, err := buildcache.Dir(RootsVariable, "roots")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{suite}, packages...), " ")))
	entry := buildcache.Entry{Dir: cache, Key: hex.EncodeToString(sum[:])[:buildcache.KeyLength], What: "a Debian root"}
	err = entry.Ensure(ctx, out, func(ctx context.Context, into buildcache.Build) error {
		b := &build{runner: runner{log: into.Log}, progress: &progress{into.Progress}, recipe: Recipe{Suite: suite, Packages: packages}, dir: into.Into}
		return b.root(ctx, out)
	})
	if err != nil {
		return "", fmt.Errorf("build a root of Debian %s: %w", suite, err)
	}
	return filepath.Join(entry.Path(), rootDir), nil
}

const rootDir = "root"

// root builds a root with packages on a copy of the one without.
func (b *build) root(ctx context.Context, out io.Writer) error {
	dir := filepath.Join(b.dir, rootDir)
	if len(b.recipe.Packages) == 0 {
		if err := b.prepareHost(ctx); err != nil {
			return err
		}
		b.progress.step("bootstrapping Debian %s, signatures verified", b.recipe.Suite)
		return b.bootstrap(ctx, dir)
	}
	bare, err := Root(ctx, out, b.recipe.Suite)
	if err != nil {
		return err
	}
	if err := b.host(ctx, "cp", "-a", bare, dir); err != nil {
		return err
	}
	b.progress.step("installing %s", strings.Join(b.recipe.Packages, " "))
	if err := b.install(ctx, dir, b.recipe.Packages); err != nil {
		return err
	}
	return slim(dir)
}

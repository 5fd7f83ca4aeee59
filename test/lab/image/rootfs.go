package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// bootstrap makes a minimal root of the recipe's suite in dir, verified against Debian's keyring.
func (b *build) bootstrap(ctx context.Context, dir string) error {
	var errs []error
	for _, mirror := range b.mirrors(ctx) {
		err := b.debootstrap(ctx, dir, mirror)
		if err == nil {
			return b.quickDpkg(dir)
		}
		errs = append(errs, err)
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the unfinished %s: %w", dir, err)
		}
	}
	return fmt.Errorf("bootstrap Debian %s: %w", b.recipe.Suite, errors.Join(errs...))
}

func (b *build) debootstrap(ctx context.Context, dir, mirror string) error {
	args := []string{"--variant=minbase", "--keyring=" + keyring, b.recipe.Suite, dir}
	if mirror != "" {
		args = append(args, mirror)
	}
	return b.host(ctx, "debootstrap", args...)
}

// quickDpkg lets dpkg skip its fsyncs: a build that a power cut ends is never used.
func (b *build) quickDpkg(root string) error {
	path := filepath.Join(root, "etc/dpkg/dpkg.cfg.d/lab")
	drop := "force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n"
	if err := os.WriteFile(path, []byte(drop), 0o644); err != nil {
		return fmt.Errorf("configure dpkg in %s: %w", root, err)
	}
	return nil
}

// install adds packages to a root.
func (b *build) install(ctx context.Context, root string, pkgs []string) error {
	if _, err := b.chroot(ctx, root, "apt-get", "update", "-q"); err != nil {
		return err
	}
	args := append([]string{"install", "-y", "-q", "--no-install-recommends"}, pkgs...)
	_, err := b.chroot(ctx, root, "apt-get", args...)
	return err
}

// slim removes what no machine reads.
func slim(root string) error {
	for _, pattern := range []string{
		"var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info",
		"usr/share/qemu/*hppa*", "usr/share/qemu/*sparc*", "usr/share/qemu/*ppc*", "usr/share/qemu/skiboot*",
		"usr/share/qemu/edk2-*", "usr/share/qemu/opensbi*", "usr/share/qemu/firmware",
	} {
		if err := removeGlob(filepath.Join(root, pattern)); err != nil {
			return fmt.Errorf("slim %s: %w", root, err)
		}
	}
	return nil
}

func removeGlob(pattern string) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

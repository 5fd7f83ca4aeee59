package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"
)

// Names of an image's files and layers.
const (
	kernelFile = "vmlinuz"
	rootFile   = "root.img"
	metaFile   = "image.json"
	layersDir  = "layers"
	baseLayer  = "base"
)

// The variants of the machine's VFIO modules.
const (
	// Legacy has Debian's own modules: groups and their container, no iommufd, no device nodes.
	Legacy = "legacy"
	// IOMMUFD has the same sources rebuilt with iommufd and device nodes, which Debian's kernel leaves out.
	IOMMUFD = "iommufd"
)

func layers() []string { return []string{baseLayer, Legacy, IOMMUFD} }

// build is one run of the recipe into dir, which nobody else sees yet.
type build struct {
	runner
	progress *progress
	recipe   Recipe
	dir      string
	kernel   string // version, from findKernel on
}

func (b *build) layer(name string) string { return filepath.Join(b.dir, layersDir, name) }

// tools is the root in which modules are built; it is gone from the finished image.
func (b *build) tools() string { return filepath.Join(b.dir, "tools") }

// all runs the recipe from nothing to a complete image.
func (b *build) all(ctx context.Context) error {
	if err := b.prepareHost(ctx); err != nil {
		return err
	}
	b.progress.step("bootstrapping Debian %s, signatures verified", b.recipe.Suite)
	if err := os.MkdirAll(filepath.Join(b.dir, layersDir), 0o755); err != nil {
		return err
	}
	if err := b.bootstrap(ctx, b.layer(baseLayer)); err != nil {
		return err
	}
	if err := b.host(ctx, "cp", "-a", b.layer(baseLayer), b.tools()); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(b.tools(), "layers"), 0o755); err != nil { // where withLayers mounts them
		return err
	}
	if err := b.bothRoots(ctx); err != nil {
		return err
	}
	b.progress.step("choosing, unpacking and indexing modules, two variants")
	if err := b.layModules(ctx); err != nil {
		return err
	}
	return b.finish(ctx)
}

// bothRoots fills the machine's root and the tools' root side by side.
func (b *build) bothRoots(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		b.progress.step("installing QEMU and the machine's packages")
		if err := b.install(ctx, b.layer(baseLayer), b.recipe.Packages); err != nil {
			return fmt.Errorf("install the machine's packages: %w", err)
		}
		b.progress.step("the machine's packages are in")
		return slim(b.layer(baseLayer))
	})
	group.Go(func() error {
		b.progress.step("installing the kernel, its headers, its source and a compiler")
		if err := b.install(ctx, b.tools(), b.recipe.Tools); err != nil {
			return fmt.Errorf("install the build tools: %w", err)
		}
		if err := b.findKernel(); err != nil {
			return err
		}
		b.progress.step("building vfio modules with cdev, iommufd, netdevsim, labvgpu and labids for %s", b.kernel)
		if err := b.unpackSource(ctx); err != nil {
			return fmt.Errorf("unpack the kernel's source: %w", err)
		}
		if err := errors.Join(b.buildNetdevsim(ctx), b.buildVGPU(ctx), b.buildIDs(ctx)); err != nil {
			return err
		}
		return b.buildVFIO(ctx)
	})
	return group.Wait()
}

// finish writes the disk and the description, and drops what only the build needed.
func (b *build) finish(ctx context.Context) error {
	if err := b.unpackKernel(ctx); err != nil {
		return fmt.Errorf("unpack the kernel: %w", err)
	}
	if err := os.RemoveAll(b.tools()); err != nil {
		return err
	}
	b.progress.step("writing the root disk")
	disk := filepath.Join(b.dir, rootFile)
	args := []string{"-q", "-d", filepath.Join(b.dir, layersDir), "-O", "^has_journal", "-E", "lazy_itable_init=1", "-m", "0"}
	if err := b.host(ctx, "mkfs.ext4", append(args, disk, strconv.Itoa(b.recipe.RootMiB)+"M")...); err != nil {
		return fmt.Errorf("write the root disk: %w", err)
	}
	text, err := json.MarshalIndent(meta{Kernel: b.kernel}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, metaFile), text, 0o644)
}

// meta is what the image says about itself.
type meta struct {
	Kernel string `json:"kernel"`
}

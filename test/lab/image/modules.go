package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/lab/kmod"
)

// modulesDir is where a kernel's modules lie in a root.
func (b *build) modulesDir(root string) string {
	return filepath.Join(root, "usr/lib/modules", b.kernel)
}

// layModules fills the layers: what both variants have into base, the rest and the indexes into each variant.
func (b *build) layModules(ctx context.Context) error {
	stock := b.modulesDir(b.tools())
	index, err := kmod.Read(os.DirFS(stock))
	if err != nil {
		return err
	}
	common, err := index.Files(b.recipe.Modules...)
	if err != nil {
		return fmt.Errorf("collect the machine's modules: %w", err)
	}
	vfio, err := index.Files(b.recipe.StockVFIO...)
	if err != nil {
		return fmt.Errorf("collect the stock VFIO modules: %w", err)
	}
	if err := errors.Join(
		copyFiles(stock, b.modulesDir(b.layer(baseLayer)), withoutVFIO(common)),
		copyFiles(stock, b.modulesDir(b.layer(baseLayer)), withoutVFIO(vfio)),
		copyFiles(stock, b.modulesDir(b.layer(Legacy)), onlyVFIO(vfio)),
		b.copyBuilt(vfioDir, IOMMUFD),
		b.copyBuilt(vgpuDir, Legacy),
		b.copyBuilt(netdevsimDir, baseLayer),
		b.copyBuilt(idsDir, baseLayer),
	); err != nil {
		return fmt.Errorf("copy modules: %w", err)
	}
	if err := b.unpackModules(ctx); err != nil {
		return err
	}
	return errors.Join(b.indexVariant(ctx, Legacy), b.indexVariant(ctx, IOMMUFD))
}

func isVFIO(file string) bool { return strings.HasPrefix(file, "kernel/drivers/vfio/") }

func onlyVFIO(files []string) []string { return filter(files, isVFIO) }

func withoutVFIO(files []string) []string {
	return filter(files, func(file string) bool { return !isVFIO(file) })
}

func filter(files []string, keep func(string) bool) []string {
	var kept []string
	for _, file := range files {
		if keep(file) {
			kept = append(kept, file)
		}
	}
	return kept
}

// copyFiles copies files, named relative to from, to the same places under to.
func copyFiles(from, to string, files []string) error {
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(from, file))
		if err != nil {
			return err
		}
		target := filepath.Join(to, file)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// updatesDir is where the modules that were built here lie in a root.
func (b *build) updatesDir(root string) string { return filepath.Join(b.modulesDir(root), "updates") }

// copyBuilt takes the modules that were built below dir into a layer, all into one directory.
func (b *build) copyBuilt(dir, layer string) error {
	extra := b.updatesDir(b.layer(layer))
	if err := os.MkdirAll(extra, 0o755); err != nil {
		return err
	}
	return filepath.WalkDir(filepath.Join(b.tools(), dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".ko" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(extra, d.Name()), data, 0o644)
	})
}

// unpackModules decompresses the modules, for loaders that are smaller than modprobe and for speed under
// emulation, and drops the debug information of those that were built here.
func (b *build) unpackModules(ctx context.Context) error {
	for _, layer := range layers() {
		inside := "/" + filepath.Join("layers", layer, "usr/lib/modules")
		if err := b.withLayers(ctx, "find", inside, "-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"); err != nil {
			return fmt.Errorf("unpack modules: %w", err)
		}
	}
	var strip []string
	for _, layer := range layers() {
		strip = append(strip, b.updatesDir("/"+filepath.Join("layers", layer)))
	}
	strip = append(strip, "-name", "*.ko", "-exec", "strip", "--strip-debug", "{}", "+")
	if err := b.withLayers(ctx, "find", strip...); err != nil {
		return fmt.Errorf("strip modules: %w", err)
	}
	return nil
}

// withLayers runs a tool that sees the layers at /layers.
func (b *build) withLayers(ctx context.Context, name string, args ...string) error {
	script := `mount --bind "$1" "$2/layers"; root=$2; shift 2; exec chroot "$root" "$@"`
	run := []string{"-ec", script, "sh", filepath.Join(b.dir, layersDir), b.tools(), name}
	return b.host(ctx, "/bin/sh", append(run, args...)...)
}

// indexVariant runs depmod over what a machine of the variant sees, base and variant merged, and puts the indexes
// into the variant's layer: modules.alias then names the very VFIO drivers that can be loaded.
func (b *build) indexVariant(ctx context.Context, variant string) error {
	merged := filepath.Join("/layers", "merged-"+variant)
	host := filepath.Join(b.dir, layersDir, "merged-"+variant)
	into := b.modulesDir(host)
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	if err := os.Symlink("usr/lib", filepath.Join(host, "lib")); err != nil { // where depmod looks
		return err
	}
	for _, layer := range []string{baseLayer, variant} {
		if err := b.host(ctx, "cp", "-al", b.modulesDir(b.layer(layer))+"/.", into); err != nil {
			return fmt.Errorf("merge the modules of %s: %w", variant, err)
		}
	}
	stock := b.modulesDir(b.tools())
	builtin := []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"}
	if err := copyFiles(stock, into, builtin); err != nil {
		return err
	}
	if err := b.withLayers(ctx, "depmod", "-b", merged, b.kernel); err != nil {
		return fmt.Errorf("index the modules of %s: %w", variant, err)
	}
	return errors.Join(b.takeIndexes(into, b.modulesDir(b.layer(variant))), os.RemoveAll(host))
}

func (b *build) takeIndexes(from, to string) error {
	indexes, err := filepath.Glob(filepath.Join(from, "modules.*"))
	if err != nil {
		return err
	}
	for i, path := range indexes {
		indexes[i] = filepath.Base(path)
	}
	return copyFiles(from, to, indexes)
}

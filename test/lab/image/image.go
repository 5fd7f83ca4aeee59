package image

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Image is a built image. Its files are shared by all machines and never written.
type Image struct {
	// Dir is the image's directory in the cache.
	Dir string
	// KernelVersion is what uname -r says in the machine.
	KernelVersion string
}

// Kernel is the path of the machine's kernel, a bzImage.
func (i Image) Kernel() string { return filepath.Join(i.Dir, kernelFile) }

// Disk is the path of the root disk: an ext4 file system with one directory for each layer (base, legacy,
// iommufd), which the machine stacks with overlayfs.
func (i Image) Disk() string { return filepath.Join(i.Dir, rootFile) }

// Modules is the directory of the modules that both variants have. Its index lies in ModuleIndex.
func (i Image) Modules() string {
	return filepath.Join(i.Dir, layersDir, baseLayer, "usr/lib/modules", i.KernelVersion)
}

// ModuleIndex is the directory of the modules.* files of a variant.
func (i Image) ModuleIndex(variant string) string {
	return filepath.Join(i.Dir, layersDir, variant, "usr/lib/modules", i.KernelVersion)
}

// QEMU is the command, with its first arguments and its environment, that runs the image's QEMU on a host with any
// C library: through the image's own dynamic linker.
func (i Image) QEMU() (argv, env []string) {
	const arch = "x86_64-linux-gnu"
	root := filepath.Join(i.Dir, layersDir, baseLayer)
	argv = []string{
		filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"),
		"--library-path", filepath.Join(root, "usr/lib", arch),
		filepath.Join(root, "usr/bin/qemu-system-x86_64"),
		"-L", filepath.Join(root, "usr/share/qemu"), "-L", filepath.Join(root, "usr/share/seabios"),
	}
	return argv, []string{"QEMU_MODULE_DIR=" + filepath.Join(root, "usr/lib", arch, "qemu")}
}

// Ensure returns the image of this source, building it first where the cache has none: some minutes, as root, with
// a network. Progress goes to out. Any number of processes may call it; one builds and the others wait. A build
// that ends early, by error or signal, leaves nothing that a later call would use.
func Ensure(ctx context.Context, out io.Writer) (Image, error) {
	c, err := cached()
	if err != nil {
		return Image{}, err
	}
	if err := c.Ensure(ctx, out, buildImage); err != nil {
		return Image{}, fmt.Errorf("build the lab's image: %w", err)
	}
	return open(c.Path())
}

// open reads a complete image.
func open(dir string) (Image, error) {
	text, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return Image{}, fmt.Errorf("open the lab's image: %w", err)
	}
	var m meta
	if err := json.Unmarshal(text, &m); err != nil {
		return Image{}, fmt.Errorf("open the lab's image %s: %w", dir, err)
	}
	return Image{Dir: dir, KernelVersion: m.Kernel}, nil
}

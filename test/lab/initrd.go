package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/lab/cpio"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/initramfs"
)

const module = "github.com/kata-vfio/kata-vfio"

// initrdModules are what the machine needs before it has its root; crc32c_generic is what ext4 asks for at mount.
func initrdModules() []string {
	return []string{"virtio_blk", "crc32c_generic", "ext4", "overlay", "9pnet_virtio", "9p"}
}

// writeInitrd makes the machine's initramfs in dir: the lab's programs, compiled now, and the modules for the root.
func writeInitrd(ctx context.Context, img image.Image, dir string) error {
	f, err := os.Create(filepath.Join(dir, initrdFile))
	if err != nil {
		return err
	}
	w := cpio.NewWriter(f)
	err = errors.Join(addPrograms(ctx, w, dir), initramfs.AddModules(w, img.ModuleIndex(image.Legacy), img.Modules(), initrdModules()...))
	return errors.Join(err, w.Close(), f.Close())
}

// addPrograms compiles the first processes of the machine and of its nested VM.
func addPrograms(ctx context.Context, w *cpio.Writer, dir string) error {
	for pkg, name := range map[string]string{"machine": "init", "vm": "vm"} {
		binary := filepath.Join(dir, name)
		if err := compile.Static(ctx, module+"/test/lab/guest/"+pkg, binary); err != nil {
			return err
		}
		if err := errors.Join(initramfs.AddProgram(w, name, binary), os.Remove(binary)); err != nil {
			return err
		}
	}
	return nil
}

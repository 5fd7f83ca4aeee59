package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/test/compile"
	"github.com/kata-vfio/kata-vfio/test/lab/cpio"
	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/kmod"
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
	err = errors.Join(addPrograms(ctx, w, dir), addModules(w, img))
	return errors.Join(err, w.Close(), f.Close())
}

// addPrograms compiles the first processes of the machine and of its nested VM.
func addPrograms(ctx context.Context, w *cpio.Writer, dir string) error {
	for pkg, name := range map[string]string{"machine": "init", "vm": "vm"} {
		binary := filepath.Join(dir, name)
		if err := compile.Static(ctx, module+"/test/lab/guest/"+pkg, binary); err != nil {
			return err
		}
		data, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		w.File(name, 0o755, data)
		if err := os.Remove(binary); err != nil {
			return err
		}
	}
	return nil
}

func addModules(w *cpio.Writer, img image.Image) error {
	index, err := kmod.Read(os.DirFS(img.ModuleIndex(image.Legacy)))
	if err != nil {
		return err
	}
	files, err := index.Files(initrdModules()...)
	if err != nil {
		return err
	}
	for i, file := range files {
		data, err := os.ReadFile(filepath.Join(img.Modules(), file))
		if err != nil {
			return fmt.Errorf("add a module to the initramfs: %w", err)
		}
		w.File(fmt.Sprintf("%s/%03d-%s.ko", boot.ModulesDir[1:], i, kmod.Name(file)), 0o644, data)
	}
	return nil
}

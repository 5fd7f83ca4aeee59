package kata

import (
	"context"
	"errors"
	"os"

	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/lab/cpio"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/initramfs"
)

const guestInit = "github.com/kata-vfio/kata-vfio/test/e2e/kata/guest"

// guestModules are the drivers of what Kata and the lab give to VMs.
func guestModules() []string {
	return []string{
		"vmw_vsock_virtio_transport", "virtio_net", "virtio_blk", "overlay",
		"igbvf", "igb", "e1000e", "nvme", "bochs", "virtio-gpu",
	}
}

// guestDirs are mount points and what the agent expects to be there.
func guestDirs() []string {
	return []string{"proc", "sys", "dev", "run", "tmp", "etc", "var", "mnt", "lib", "sbin", "bin", "root"}
}

// WriteInitramfs makes the initramfs of the node's VMs: Kata's agent, and the lab's modules. It compiles the first process.
func (i Install) WriteInitramfs(ctx context.Context, img image.Image, path string) error {
	program := path + ".init"
	if err := compile.Static(ctx, guestInit, program); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := cpio.NewWriter(f)
	for _, dir := range guestDirs() {
		w.Dir(dir)
	}
	err = errors.Join(
		initramfs.AddProgram(w, "init", program),
		initramfs.AddProgram(w, "usr/bin/kata-agent", i.agent),
		initramfs.AddModules(w, img.ModuleIndex(image.Legacy), img.Modules(), guestModules()...),
	)
	return errors.Join(err, w.Close(), f.Close(), os.Remove(program))
}

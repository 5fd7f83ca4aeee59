package nested

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/cpio"
	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
	"github.com/kata-vfio/kata-vfio/test/lab/kmod"
)

// firstProcess is where the lab machine has the VM's init.
const firstProcess = "/usr/libexec/kata-vfio-lab/vm"

// vmModules are the drivers of what the lab gives to VMs.
func vmModules() []string {
	return []string{"igbvf", "igb", "e1000e", "nvme", "bochs", "virtio-gpu"}
}

// kernelRelease is what uname -r says: the VM runs the machine's kernel.
func kernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// writeInitrd makes the VM's initramfs.
func writeInitrd(path, release string, more map[string]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := cpio.NewWriter(f)
	return errors.Join(fillInitrd(w, release), addFiles(w, more), w.Close(), f.Close())
}

func addFiles(w *cpio.Writer, files map[string]string) error {
	for path, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		w.File(strings.TrimPrefix(path, "/"), 0o755, data)
	}
	return nil
}

func fillInitrd(w *cpio.Writer, release string) error {
	program, err := os.ReadFile(firstProcess)
	if err != nil {
		return err
	}
	w.File("init", 0o755, program)
	dir := filepath.Join("/lib/modules", release)
	index, err := kmod.Read(os.DirFS(dir))
	if err != nil {
		return err
	}
	files, err := index.Files(vmModules()...)
	if err != nil {
		return err
	}
	for i, file := range files {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		w.File(fmt.Sprintf("%s/%03d-%s.ko", boot.ModulesDir[1:], i, kmod.Name(file)), 0o644, data)
	}
	return nil
}

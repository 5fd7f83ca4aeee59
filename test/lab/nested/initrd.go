package nested

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/cpio"
	"github.com/kata-vfio/kata-vfio/test/lab/initramfs"
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
		if err := initramfs.AddProgram(w, strings.TrimPrefix(path, "/"), from); err != nil {
			return err
		}
	}
	return nil
}

func fillInitrd(w *cpio.Writer, release string) error {
	dir := filepath.Join("/lib/modules", release)
	return errors.Join(initramfs.AddProgram(w, "init", firstProcess), initramfs.AddModules(w, dir, dir, vmModules()...))
}

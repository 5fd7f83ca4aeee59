// Package initramfs fills the initial RAM file systems of the lab's machine and of the VMs in it: programs, and modules that
// package boot loads there.
package initramfs

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/test/lab/cpio"
	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
	"github.com/kata-vfio/kata-vfio/test/lab/kmod"
)

// AddProgram adds an executable file of this host by its path in the archive.
func AddProgram(w *cpio.Writer, name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("add a program to the initramfs: %w", err)
	}
	w.File(name, 0o755, data)
	return nil
}

// AddModules adds modules and what they need, named so that [boot.LoadModules] loads them in order. index is the directory of
// the kernel's modules.dep, and files that of the modules, unpacked.
func AddModules(w *cpio.Writer, index, files string, names ...string) error {
	modules, err := kmod.Read(os.DirFS(index))
	if err != nil {
		return err
	}
	wanted, err := modules.Files(names...)
	if err != nil {
		return err
	}
	for i, file := range wanted {
		data, err := os.ReadFile(filepath.Join(files, file))
		if err != nil {
			return fmt.Errorf("add a module to the initramfs: %w", err)
		}
		w.File(fmt.Sprintf("%s/%03d-%s.ko", boot.ModulesDir[1:], i, kmod.Name(file)), 0o644, data)
	}
	return nil
}

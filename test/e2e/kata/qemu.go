package kata

import (
	"fmt"
	"os"
	"path/filepath"
)

// QEMU on the node: the machine's, which is Debian's, and one that was named.
const (
	machinesQEMU = "/usr/bin/qemu-system-x86_64"
	ownQEMU      = "bin/lab-qemu"
)

// firmware are the directories from which a release's QEMU takes its firmware, below Dir: it is compiled with their place.
const firmware = "share/kata-qemu*"

// QEMU is the path on the node of the program that runs the VMs.
func (i Install) QEMU() string {
	if i.qemu == "" {
		return machinesQEMU
	}
	return filepath.Join(Dir, ownQEMU)
}

// findQEMU says why a QEMU that was named can't run the VMs. The machine has no libraries of other systems, and a QEMU without its
// firmware ends before the VM's first instruction.
func (i Install) findQEMU() error {
	if i.qemu == "" {
		return nil
	}
	if info, err := os.Stat(i.qemu); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("find the QEMU that KATA_QEMU names: %s is no program. Name one of the release, such as %s", i.qemu, filepath.Join(i.dir, "bin/qemu-system-x86_64"))
	}
	dynamic, err := needsInterpreter(i.qemu)
	switch {
	case err != nil:
		return fmt.Errorf("take the QEMU that KATA_QEMU names: %w", err)
	case dynamic:
		return fmt.Errorf("take the QEMU that KATA_QEMU names: %s is not a static program, and the lab's machine may lack its libraries. Name one of Kata's release", i.qemu)
	}
	if dirs, err := filepath.Glob(filepath.Join(i.dir, firmware)); err != nil || len(dirs) == 0 {
		return fmt.Errorf("find the firmware of the QEMU that KATA_QEMU names: %s has no %s. Unpack the release whose QEMU it is", i.dir, firmware)
	}
	return nil
}

// stageFirmware puts the firmware of a QEMU that was named into dir, which becomes Dir on the node.
func (i Install) stageFirmware(dir string) error {
	if i.qemu == "" {
		return nil
	}
	dirs, err := filepath.Glob(filepath.Join(i.dir, firmware))
	if err != nil {
		return fmt.Errorf("stage QEMU's firmware: %w", err)
	}
	for _, from := range dirs {
		if err := os.CopyFS(filepath.Join(dir, "share", filepath.Base(from)), os.DirFS(from)); err != nil {
			return fmt.Errorf("stage QEMU's firmware: %w", err)
		}
	}
	return nil
}

package kata

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// named has a release, and the program as its QEMU with the mode.
func named(t *testing.T, kind elf.ProgType, mode os.FileMode, firmware bool) Source {
	t.Helper()
	dir := release(t, goShim, goConfig, agentFile)
	text, err := os.ReadFile(program(t, kind))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "bin/qemu-system-x86_64", string(text))
	qemu := filepath.Join(dir, "bin/qemu-system-x86_64")
	if err := os.Chmod(qemu, mode); err != nil {
		t.Fatal(err)
	}
	if firmware {
		write(t, dir, "share/kata-qemu-no-shared-fs/qemu/bios-256k.bin", "firmware")
	}
	return Source{Dir: dir, QEMU: qemu}
}

func TestQEMUOfTheRelease(t *testing.T) {
	source := named(t, elf.PT_LOAD, 0o755, true)
	install, err := Find(t.Context(), source, Go)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := install.QEMU(), "/opt/kata/bin/lab-qemu"; got != want {
		t.Errorf("VMs run by %s, want %s", got, want)
	}
	staged := filepath.Join(t.TempDir(), "kata")
	if err := install.Stage(staged); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"bin/lab-qemu", "share/kata-qemu-no-shared-fs/qemu/bios-256k.bin"} {
		if !exists(filepath.Join(staged, file)) {
			t.Errorf("the node lacks %s", file)
		}
	}
	source.QEMU = ""
	if install, err = Find(t.Context(), source, Go); err != nil || install.QEMU() != "/usr/bin/qemu-system-x86_64" {
		t.Errorf("without KATA_QEMU, VMs run by %s (%v), want the machine's", install.QEMU(), err)
	}
}

func TestQEMUThatCantRunIsRefused(t *testing.T) {
	missing := named(t, elf.PT_LOAD, 0o755, true)
	missing.QEMU += "-none"
	for want, source := range map[string]Source{
		"qemu-system-x86_64-none is no program": missing,
		"qemu-system-x86_64 is no program":      named(t, elf.PT_LOAD, 0o644, true),
		"is not a static program":               named(t, elf.PT_INTERP, 0o755, true),
		"has no share/kata-qemu*":               named(t, elf.PT_LOAD, 0o755, false),
	} {
		if _, err := Find(t.Context(), source, Go); err == nil || !strings.Contains(err.Error(), "KATA_QEMU") || !strings.Contains(err.Error(), want) {
			t.Errorf("Find = %v; want an error that names KATA_QEMU and has %q", err, want)
		}
	}
}

package kernelargs_test

import (
	"path"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// TestPatternsHaveEverySource keeps copies of nodes whole: what is read of the node is also in its copy.
func TestPatternsHaveEverySource(t *testing.T) {
	of := tree{"boot/efi/EFI/fedora/grubenv": ""}
	for _, name := range []string{
		"etc/default/grub.d/a.cfg", "etc/u-boot-menu/conf.d/a.conf", "etc/kernel/cmdline.d/a.cfg", "etc/cmdline.d/a.conf",
		"boot/loader/entries/a.conf", "efi/loader/entries/a.conf", "boot/efi/loader/entries/a.conf", "etc/modprobe.d/a.conf", "lib/modprobe.d/b.conf",
	} {
		of[name] = ""
	}
	s := kernelargs.AllSources(of)
	read := slices.Concat(s.Settings, s.Environment, s.Scripts, s.Entries, s.Lines, s.Quoted, kernelargs.ModprobeFiles(of.Names), []string{kernelargs.Running, kernelargs.InitramfsModules})
	if len(read) < 36 {
		t.Fatalf("only %d files are read: %v", len(read), read)
	}
	for _, name := range read {
		matches := func(pattern string) bool { ok, err := path.Match(pattern, name); return err == nil && ok }
		if !slices.ContainsFunc(kernelargs.Patterns(), matches) {
			t.Errorf("%s is read, and no pattern has it", name)
		}
	}
}

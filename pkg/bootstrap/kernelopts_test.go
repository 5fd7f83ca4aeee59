package bootstrap_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// environment is an environment block of GRUB's size.
func environment(lines string) string {
	text := "# GRUB Environment Block\n" + lines
	return text + strings.Repeat("#", 1024-len(text))
}

const grubenv = "boot/efi/EFI/redhat/grubenv"

// rhel8 is a node whose entries take their arguments from GRUB's environment, which is on the EFI system partition.
func rhel8(t *testing.T, lines string) *node {
	t.Helper()
	return newNode(t, bare("rhel", "Red Hat Enterprise Linux 8.10", map[string]string{
		"etc/default/grub": "GRUB_ENABLE_BLSCFG=true\nGRUB_CMDLINE_LINUX=\"quiet\"\n", "usr/sbin/grub2-mkconfig": gnuMkconfig, "usr/bin/dracut": "",
		"boot/loader/entries/a.conf": "title RHEL\nlinux /vmlinuz-a\noptions $kernelopts $tuned_params\n",
		"boot/loader/entries/b.conf": "title own\nlinux /vmlinuz-b\noptions root=/dev/sda1 ro debug\n",
		"boot/grub2/grubenv":         "-> ../efi/EFI/redhat/grubenv", grubenv: environment(lines),
	}))
}

const words = " intel_iommu=on iommu=nopt"

func TestLaterKernelsOfRHEL8GetTheArguments(t *testing.T) {
	n := rhel8(t, "saved_entry=a\nkernelopts=root=/dev/sda1 ro\nboot_success=0\n")
	before := n.snapshot()
	n.apply(blueprint.Default())
	if got := n.read(grubenv); got != environment("saved_entry=a\nkernelopts=root=/dev/sda1 ro"+words+"\nboot_success=0\n") {
		t.Errorf("the environment is\n%s", got)
	}
	if info, err := os.Lstat(filepath.Join(n.root, "boot/grub2/grubenv")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is replaced: %v, %v", info, err)
	}
	if got := n.read("boot/loader/entries/a.conf"); strings.Contains(got, "iommu") {
		t.Errorf("the entry with $kernelopts is\n%s", got)
	}
	if got := n.read("boot/loader/entries/b.conf"); !strings.Contains(got, "ro debug"+words+"\n") {
		t.Errorf("the entry with its own arguments is\n%s", got)
	}
	if got := n.read("etc/default/grub"); !strings.Contains(got, "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on\"") {
		t.Errorf("GRUB's settings are\n%s", got)
	}
	n.revert()
	n.same(before, "after revert")
}

// GRUB and kernels' packages write other variables between apply and revert: that is not a drift, and stays.
func TestVariablesOfOthersInGRUBsEnvironmentStay(t *testing.T) {
	n := rhel8(t, "saved_entry=a\nkernelopts=ro\n")
	n.apply(blueprint.Default())
	n.put(grubenv, environment("saved_entry=b\nkernelopts=ro"+words+" audit=1\nboot_success=1\n"))
	for _, f := range n.plan(blueprint.Default()).Files {
		if f.Path == grubenv && (f.Status != bootstrap.Right || f.Drift != nil) {
			t.Errorf("planned %+v", f)
		}
	}
	if r := n.revert(); len(r.Kept) > 0 {
		t.Errorf("kept %+v", r.Kept)
	}
	if got := n.read(grubenv); got != environment("saved_entry=b\nkernelopts=ro audit=1\nboot_success=1\n") {
		t.Errorf("reverted\n%s", got)
	}
	if r, err := n.engine().Status(); err != nil || len(r.Files) > 0 {
		t.Errorf("status %+v, %v", r, err)
	}
}

func TestArgumentsThatOthersRemovedAreSetAgain(t *testing.T) {
	n := rhel8(t, "kernelopts=ro\n")
	n.apply(blueprint.Default())
	n.put(grubenv, environment("kernelopts=ro\nboot_success=1\n"))
	n.apply(blueprint.Default())
	if got := n.read(grubenv); got != environment("kernelopts=ro"+words+"\nboot_success=1\n") {
		t.Errorf("applied again\n%s", got)
	}
	n.put(grubenv, environment("kernelopts=ro\nboot_success=2\n"))
	if r := n.revert(); len(r.Kept) > 0 || n.read(grubenv) != environment("kernelopts=ro\nboot_success=2\n") {
		t.Errorf("kept %+v", r.Kept)
	}
}

// Without kernelopts in the file, setting it would hide GRUB's own default, which has root=.
func TestEnvironmentWithoutKerneloptsIsLeftToGrubby(t *testing.T) {
	for _, lines := range []string{"saved_entry=a\n", "kernelopts=ro\nenv_block=512+1\n"} {
		n := rhel8(t, lines)
		said := told(n.plan(blueprint.Default()), nil)
		if !strings.Contains(said, "grubby --update-kernel=ALL") || strings.Contains(said, "grubenv change") {
			t.Errorf("%q: said\n%s", lines, said)
		}
	}
}

//go:build labhost

package lab_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/internal/scratch"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
)

// distributed is a root in which a distribution's own tools are set up as its installer does. They run as they do where images are
// built: by chroot(2), with the host's /proc, /sys and /dev.
type distributed struct {
	name, suite string
	packages    []string
	// make makes the initial RAM file system of the kernel $V, install then the loader's first configuration.
	make, install string
	// lines prints what kernels are started with, and holds what the initial RAM file system has.
	lines, holds string
}

// systemdBoot has kernel-install write entries below $B. What stands in for an EFI partition has no file system of EFI's, which
// bootctl would miss.
const systemdBoot = `
printf '#!/bin/sh\nexit 0\n' >/usr/local/bin/bootctl; chmod +x /usr/local/bin/bootctl
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
mkdir -p /etc/kernel /boot/efi/0123456789abcdef0123456789abcdef
printf 'layout=bls\nBOOT_ROOT=/boot/efi\n' >/etc/kernel/install.conf
echo 'root=/dev/vda ro quiet' >/etc/kernel/cmdline
`

const (
	initramfsTools = "update-initramfs -c -k $V"
	dracut         = "dracut --no-hostonly --force /boot/initrd.img-$V $V"
	grub           = "cp /usr/share/grub/default/grub /etc/default/grub; mkdir -p /boot/grub; update-grub"
	grubLines      = `grep -E '^\s*linux\s' /boot/grub/grub.cfg`
)

// distributions are the roots. With -short two are enough for GRUB, systemd-boot, initramfs-tools and dracut; each of the others has an
// image of its own to build.
func distributions() []distributed {
	with := func(packages ...string) []string { return append(packages, "kmod", "systemd", "udev", "zstd") }
	all := []distributed{
		{"Debian 13, GRUB, dracut", "trixie", with("grub2-common", "dracut"), dracut, grub, grubLines, "lsinitrd"},
		{
			"Debian 13, systemd-boot", "trixie", with("systemd-boot", "initramfs-tools"), systemdBoot + initramfsTools, ":",
			"grep ^options /boot/efi/loader/entries/*; cat /etc/kernel/cmdline", "lsinitramfs",
		},
	}
	if testing.Short() {
		return all
	}
	return append(all,
		distributed{"Debian 13, GRUB, initramfs-tools", "trixie", with("grub2-common", "initramfs-tools"), initramfsTools, grub, grubLines, "lsinitramfs"},
		distributed{
			"Debian 13, u-boot-menu", "trixie", with("u-boot-menu", "initramfs-tools"), initramfsTools, "u-boot-update",
			"grep append /boot/extlinux/extlinux.conf", "lsinitramfs",
		},
		distributed{"Debian 12, GRUB, initramfs-tools", "bookworm", with("grub2-common", "initramfs-tools"), initramfsTools, grub, grubLines, "lsinitramfs"},
	)
}

// installation is one such root, to work in.
type installation struct {
	*testing.T
	distributed
	root, kernel, program string
}

// in runs a program with the root's /proc, /sys and /dev mounted, which are gone with it.
func (i *installation) in(program string, args ...string) (said string, code int) {
	i.Helper()
	const enter = `R=$0; mount --bind "$R" "$R"; mount -t proc proc "$R/proc"; mount --rbind /dev "$R/dev"; mount --rbind /sys "$R/sys"; exec "$@"`
	cmd := exec.CommandContext(i.Context(), "sh", append([]string{"-ec", enter, i.root, program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		i.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// shell runs a line in the root, where V is the kernel's version.
func (i *installation) shell(line string) string {
	i.Helper()
	said, code := i.in("chroot", i.root, "env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "V="+i.kernel, "sh", "-ec", line)
	if code != 0 {
		i.Fatalf("%s: exit code %d: %s", line, code, said)
	}
	return said
}

// bootstrap runs a command of kata-vfio-bootstrap on the root.
func (i *installation) bootstrap(code int, args ...string) {
	i.Helper()
	said, got := i.in(i.program, append(args, "--root", i.root)...)
	i.Logf("# kata-vfio-bootstrap %s (exit code %d)\n%s", strings.Join(args, " "), got, said)
	if got != code {
		i.Fatalf("%s: exit code %d, want %d", args[0], got, code)
	}
}

// lay lays down a kernel with its modules: the lab's.
func (i *installation) lay(img image.Image) {
	i.Helper()
	modules := filepath.Join(i.root, "usr/lib/modules")
	lines := fmt.Sprintf("mkdir -p %[1]s; cp -a %[2]s %[1]s/; cp -a %[3]s/. %[1]s/%[4]s/; cp %[5]s %[6]s/boot/vmlinuz-%[4]s",
		modules, img.Modules(), img.ModuleIndex(image.IOMMUFD), i.kernel, img.Kernel(), i.root)
	if out, err := exec.CommandContext(i.Context(), "sh", "-ec", lines).CombinedOutput(); err != nil {
		i.Fatalf("lay a kernel down: %v: %s", err, out)
	}
	config := []byte("CONFIG_BLK_DEV_INITRD=y\nCONFIG_RD_GZIP=y\nCONFIG_RD_ZSTD=y\n")
	for _, name := range []string{"boot/config-" + i.kernel, "usr/lib/modules/" + i.kernel + "/config"} {
		if err := os.WriteFile(filepath.Join(i.root, name), config, 0o644); err != nil {
			i.Fatal(err)
		}
	}
}

// files are those that a node's administrators and tools write, with their modes and sums; initial RAM file systems have times in them.
func (i *installation) files() string {
	i.Helper()
	return i.shell("find etc boot var -xdev -not -path 'var/lib/kata-vfio*' -printf '%p %y %m %U:%G %l\\n' | sort; " +
		"find etc boot var -xdev -type f -not -path 'var/lib/kata-vfio*' -not -name 'initrd*' | sort | xargs sha256sum")
}

const earlyBinding = `
apiVersion: bootstrap.kata-vfio.dev/v1alpha1
kind: NodeBlueprint
name: roots
kernel: {earlyBinding: true}
vfio: {keepOff: ["0000:41:00.0"]}
containers: {runtime: None}
`

// TestRoots makes images of distributions fit with their own tools, and takes it back: those tools read what bootstrap has written, and
// it is as before to the byte.
func TestRoots(t *testing.T) {
	img, err := image.Ensure(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	program, blueprint := filepath.Join(t.TempDir(), "kata-vfio-bootstrap"), filepath.Join(t.TempDir(), "blueprint.yaml")
	if err := compile.Static(t.Context(), "github.com/kata-vfio/kata-vfio/cmd/kata-vfio-bootstrap", program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blueprint, []byte(earlyBinding), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range distributions() {
		t.Run(d.name, func(t *testing.T) {
			i := &installation{T: t, distributed: d, kernel: img.KernelVersion, program: program}
			i.copy()
			i.lay(img)
			i.shell(d.make)
			i.shell(d.install)
			i.life(blueprint)
		})
	}
}

// copy has a root to work in, on the disk that the cache is on: GRUB asks which that is.
func (i *installation) copy() {
	i.Helper()
	built, err := image.Root(i.Context(), os.Stderr, i.suite, i.packages...)
	if err != nil {
		i.Fatal(err)
	}
	dir, err := scratch.New(filepath.Dir(filepath.Dir(built)), "work-")
	if err != nil {
		i.Fatal(err)
	}
	i.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			i.Error(err)
		}
	})
	i.root = filepath.Join(dir, "root")
	if out, err := exec.CommandContext(i.Context(), "cp", "-a", built, i.root).CombinedOutput(); err != nil {
		i.Fatalf("%v: %s", err, out)
	}
}

// life is apply, apply again, verify, revert.
func (i *installation) life(blueprint string) {
	i.Helper()
	before, without := i.files(), i.shell(i.lines)
	if strings.Contains(without, "iommu") {
		i.Fatalf("kernels are started with %s before", without)
	}
	i.bootstrap(3, "plan", "-f", blueprint)
	i.bootstrap(3, "apply", "-f", blueprint, "--chroot-tools", "--detailed-exitcode")
	for line := range strings.Lines(i.shell(i.lines)) {
		if !strings.Contains(line, "intel_iommu=on iommu=nopt") {
			i.Errorf("a kernel is started with %s", line)
		}
	}
	i.read()
	i.bootstrap(0, "apply", "-f", blueprint, "--chroot-tools")
	i.bootstrap(0, "verify", "-f", blueprint)
	i.bootstrap(3, "revert", "--chroot-tools", "--detailed-exitcode")
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(i.files(), "\n")); diff != "" {
		i.Errorf("after the way back (- before, + after):\n%s", diff)
	}
	if after := i.shell(i.lines); after != without {
		i.Errorf("after the way back kernels are started with\n%s\nbefore with\n%s", after, without)
	}
	if held := i.shell(i.holds + " /boot/initrd.img-$V"); strings.Contains(held, "kata-vfio") {
		i.Errorf("after the way back the initial RAM file system has\n%s", held)
	}
}

// read asks those that read what bootstrap has written: modprobe, udev, and what starts the kernel.
func (i *installation) read() {
	i.Helper()
	held := i.shell(i.holds + " /boot/initrd.img-$V")
	for _, name := range []string{"vfio-pci.ko", "modprobe.d/50-kata-vfio.conf", "rules.d/10-kata-vfio.rules"} {
		if !strings.Contains(held, name) {
			i.Errorf("the initial RAM file system lacks %s", name)
		}
	}
	options := i.shell("modprobe --showconfig | grep '^options .*vfio\\|^options iommufd'")
	for _, want := range []string{"options vfio_pci disable_denylist=N", "options vfio_iommu_type1 allow_unsafe_interrupts=N"} {
		if !strings.Contains(options, want) {
			i.Errorf("modprobe reads %s", options)
		}
	}
	if i.suite != "bookworm" { // its udevadm does not verify
		i.shell("udevadm verify /etc/udev/rules.d/10-kata-vfio.rules")
	}
}

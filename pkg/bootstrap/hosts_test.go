package bootstrap_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
)

// reportedHost is a node as people have it, with their blueprint and bootstrap's expected answer.
type reportedHost struct {
	name  string
	files map[string]string
	image bool
	// fields are of the blueprint, in addition to "containers: {runtime: None}".
	fields string
	// want are words of the plan, and never words that it must not have.
	want, never []string
	// refused: apply changes nothing.
	refused bool
}

// bare is a node without a boot loader's files.
func bare(id, name string, more map[string]string) map[string]string {
	return with(map[string]string{
		"etc/os-release": fmt.Sprintf("NAME=%q\nID=%s\nPRETTY_NAME=%q\n", name, id, name), "proc/cmdline": "root=/dev/sda1 ro quiet\n",
	}, more)
}

// told is everything that a plan says, and that apply says when it is refused.
func told(p *bootstrap.Plan, refused error) string {
	var b strings.Builder
	fmt.Fprintln(&b, p.Notice)
	if p.Talos != nil {
		fmt.Fprintf(&b, "%s\n%s\n", p.Talos.Schematic, p.Talos.MachineConfig)
	}
	for _, f := range p.Facts {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Part, f.Name, f.Value)
	}
	for _, f := range p.Files {
		fmt.Fprintf(&b, "/%s %s\n%s\n", f.Path, f.Action, f.Diff)
	}
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "step %s: %s\n", s.FollowUp, strings.Join(s.Commands, "; "))
	}
	for _, problem := range p.Problems {
		fmt.Fprintf(&b, "problem of /%s: %s; %s\n", problem.Path, problem.Text, problem.Fix)
	}
	if refused != nil {
		fmt.Fprintln(&b, refused)
	}
	return b.String()
}

func (h *reportedHost) run(t *testing.T) {
	n := newNode(t, h.files)
	n.image = h.image
	b := parse(t, "containers: {runtime: None}\n"+h.fields)
	p := n.plan(b)
	before := n.snapshot()
	_, err := n.engine().Apply(t.Context(), b, "")
	refused, ok := errors.AsType[*bootstrap.RefusedError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if ok != h.refused {
		t.Errorf("refused %t, want %t: %v", ok, h.refused, refused)
	}
	if h.refused {
		n.same(before, "after the refusal")
	}
	said := told(p, err)
	for _, words := range h.want {
		if !strings.Contains(said, words) {
			t.Errorf("%q is missing in:\n%s", words, said)
		}
	}
	for _, words := range h.never {
		if strings.Contains(said, words) {
			t.Errorf("%q must not be in:\n%s", words, said)
		}
	}
}

func TestNodesAsPeopleHaveThem(t *testing.T) {
	for _, group := range [][]reportedHost{managedHosts(), loaderHosts(), nextBootHosts(), initramfsHosts(), firmwareHosts(), moduleHosts(), vfHosts()} {
		for _, h := range group {
			t.Run(h.name, h.run)
		}
	}
}

// managedHosts are nodes whose own tool sets the kernel's arguments: it is named, and its files are left alone.
func managedHosts() []reportedHost {
	harvester := map[string]string{
		"etc/default/grub": debianGrub, "usr/sbin/grub2-mkconfig": gnuMkconfig, "usr/bin/dracut": "", "oem/harvester.config": "os: {}\n", "oem/grubenv": "# GRUB Environment Block\n",
		"etc/cos/bootargs.cfg": "set kernelcmd=\"root=LABEL=$label cos-img/filename=$img intel_iommu=on iommu=pt\"\n",
	}
	ostreeEntry := "title Fedora (ostree:0)\noptions rw ostree=/ostree/boot.1/fedora/0123/0 root=UUID=0\nlinux /ostree/fedora-0123/vmlinuz\n"
	coreOS := map[string]string{
		"boot/loader.1/entries/ostree-1.conf": ostreeEntry, "boot/loader": "-> loader.1", "boot/grub2/grub.cfg": "blscfg\n", "usr/bin/rpm-ostree": "", "usr/bin/dracut": "", "run/ostree-booted": "",
	}
	bootc := map[string]string{
		"boot/loader/entries/ostree-1.conf": ostreeEntry, "etc/default/grub": "GRUB_ENABLE_BLSCFG=true\nGRUB_CMDLINE_LINUX=\"quiet\"\n", "usr/sbin/grub2-mkconfig": gnuMkconfig,
		"ostree/deploy/default/x": "", "usr/bin/dracut": "",
	}
	nixos := map[string]string{
		"boot/loader/entries/nixos-generation-41.conf": "title NixOS\nlinux /EFI/nixos/x.efi\noptions init=/nix/store/x/init loglevel=4\n",
		"nix/store/x-etc/etc/modprobe.d/nixos.conf":    "softdep drm pre: vfio-pci\n", "etc/static": "-> /nix/store/x-etc/etc", "etc/modprobe.d": "-> /etc/static/modprobe.d",
	}
	popOS := map[string]string{
		"etc/kernelstub/configuration": "{}\n", "boot/efi/loader/entries/Pop_OS-current.conf": entry, "usr/sbin/update-initramfs": "", "usr/share/initramfs-tools/hook-functions": "",
	}
	noFiles := []string{"/etc/modprobe.d/50-kata-vfio.conf create", "/etc/default/grub change", "conf change"}
	return []reportedHost{
		{name: "Talos", files: bare("talos", "Talos (v1.13)", nil), refused: true, never: noFiles, want: []string{"Bootstrap changes nothing on Talos", "extraKernelArgs: # where GRUB starts the node without grubUseUKICmdline\n    - intel_iommu=on\n", "bootstrap writes no files"}},
		{name: "Talos with all arguments", files: bare("talos", "Talos (v1.13)", map[string]string{"proc/cmdline": "ro intel_iommu=on iommu=nopt\n"}), never: append(noFiles, "with GRUB in its machine config"), want: []string{"udev:\n    rules:\n    - 'ACTION"}},
		{name: "Bottlerocket", files: bare("bottlerocket", "Bottlerocket OS 1.39.0", nil), refused: true, never: noFiles, want: []string{"Kernel part only: bootstrap changes nothing on Bottlerocket", "[settings.boot.kernel-parameters]\n\"intel_iommu\" = [\"on\"]\n\"iommu\" = [\"nopt\"]\n"}},
		{name: "Bottlerocket, an image", files: bare("bottlerocket", "Bottlerocket OS 1.39.0", nil), image: true, refused: true, never: noFiles, want: []string{"settings.boot.kernel-parameters"}},
		{name: "NixOS", files: withoutFile(bare("nixos", "NixOS 25.05", nixos), "etc/modprobe.d/"), refused: true, never: append(noFiles, "path escapes", "replace the link"), want: []string{"boot.kernelParams = [ \"intel_iommu=on\" \"iommu=nopt\" ];", "nixos-rebuild boot"}},
		{name: "NixOS with a conflict in an entry that it generates", files: withoutFile(bare("nixos", "NixOS 25.05", merged(nixos, "boot/loader/entries/nixos-generation-41.conf", "options init=/nix/store/x/init vfio-pci.ids=10de:13c2\nlinux /x\n")), "etc/modprobe.d/"), refused: true, want: []string{"line 1: vfio-pci.ids=10de:13c2", "remove vfio-pci.ids=10de:13c2 from boot.kernelParams", "/etc/nixos/configuration.nix"}, never: []string{"from the line"}},
		{name: "Container-Optimized OS", files: bare("cos", "Container-Optimized OS from Google", nil), refused: true, never: noFiles, want: []string{"/etc does not last", "grub.cfg on the EFI system partition", "intel_iommu=on iommu=nopt", "bootstrap writes no files"}},
		{name: "Vanilla OS", files: bare("vanilla", "Vanilla OS", map[string]string{"usr/bin/abroot": "", "etc/default/grub": debianGrub, "usr/sbin/update-grub": "", "boot/grub/grub.cfg": "x\n"}), refused: true, never: append(noFiles[1:], "update-grub"), want: []string{"abroot kargs edit", "intel_iommu=on iommu=nopt"}},
		{name: "Pop!_OS with a conflict in an entry", files: bare("pop", "Pop!_OS 24.04 LTS", merged(popOS, "boot/efi/loader/entries/Pop_OS-current.conf", "options ro iommu=pt\nlinux /x\n")), refused: true, want: []string{"kernelstub --delete-options \"iommu=pt\""}},
		{name: "rEFInd with a conflict", files: bare("debian", "Debian", map[string]string{"boot/refind_linux.conf": "# menu\n\"Boot iommu=off\" \"root=UUID=0 ro iommu=pt\"\n"}), refused: true, want: []string{"/boot/refind_linux.conf line 2: iommu=pt contradicts", "remove iommu=pt from the line"}, never: []string{"iommu=off"}},
		{name: "Limine with a conflict in its settings", files: bare("arch", "CachyOS", map[string]string{"boot/limine.conf": "/Linux\n  cmdline: root=UUID=0 iommu=pt\n", "etc/default/limine": "KERNEL_CMDLINE[default]=\"root=UUID=0\"\nKERNEL_CMDLINE[default]+=\" iommu=pt\"\n"}), refused: true, want: []string{"/etc/default/limine line 2: iommu=pt contradicts", "/boot/limine.conf line 2: iommu=pt contradicts", "from KERNEL_CMDLINE of /etc/default/limine, run `limine-update`"}},
		{name: "Limine with a conflict in its own file", files: bare("arch", "CachyOS", map[string]string{"boot/limine.conf": "/Linux\n  cmdline: root=UUID=0 iommu=pt\n"}), refused: true, want: []string{"/boot/limine.conf line 2: iommu=pt contradicts", "remove iommu=pt from the line"}},
		{name: "Harvester", files: bare("sle-micro-rancher", "Harvester v1.4.1", harvester), refused: true, never: append(noFiles, "grub2-mkconfig"), want: []string{"grub2-editenv /oem/grubenv set third_party_kernel_args=", "/etc/cos/bootargs.cfg"}},
		{name: "Harvester, an image", files: bare("sle-micro-rancher", "Harvester v1.4.1", harvester), image: true, refused: true, never: append(noFiles, "grub2-mkconfig"), want: []string{"third_party_kernel_args="}},
		{name: "Elemental by its command line", files: bare("sl-micro", "SL Micro 6.1", map[string]string{"proc/cmdline": "root=LABEL=COS_ACTIVE cos-img/filename=/cOS/active.img\n", "etc/default/grub": debianGrub, "usr/sbin/grub2-mkconfig": gnuMkconfig}), refused: true, never: noFiles, want: []string{"set extra_cmdline="}},
		{name: "Fedora CoreOS", files: bare("fedora", "Fedora CoreOS 42", coreOS), refused: true, never: noFiles[1:], want: []string{"rpm-ostree kargs --append-if-missing=intel_iommu=on --append-if-missing=iommu=nopt"}},
		{name: "Fedora CoreOS with all arguments", files: bare("fedora", "Fedora CoreOS 42", merged(coreOS, "proc/cmdline", "ostree=/x intel_iommu=on iommu=nopt\n")), never: append(noFiles[1:], "rpm-ostree"), want: []string{"/etc/modprobe.d/50-kata-vfio.conf create"}},
		{name: "OSTree, an image", files: bare("fedora", "Fedora CoreOS 42", coreOS), image: true, never: noFiles[1:], want: []string{"rpm-ostree kargs"}},
		{name: "RHEL CoreOS", files: bare("rhcos", "Red Hat Enterprise Linux CoreOS 9.6", coreOS), refused: true, never: noFiles[1:], want: []string{"kind: MachineConfig\nspec:\n  kernelArguments:\n  - intel_iommu=on\n"}},
		{name: "bootc beside GRUB's settings", files: bare("fedora", "Bluefin", bootc), refused: true, never: noFiles[1:], want: []string{"/usr/lib/bootc/kargs.d: kargs = [\"intel_iommu=on\", \"iommu=nopt\"]"}},
		{name: "Pop!_OS", files: bare("pop", "Pop!_OS 24.04 LTS", popOS), refused: true, never: noFiles[1:], want: []string{"kernelstub --add-options \"intel_iommu=on iommu=nopt\""}},
		{name: "Ubuntu Core", files: bare("ubuntu-core", "Ubuntu Core 24", nil), refused: true, never: noFiles, want: []string{"snap set system system.kernel.dangerous-cmdline-append=\"intel_iommu=on iommu=nopt\""}},
		{name: "rEFInd", files: bare("debian", "Debian", map[string]string{"boot/refind_linux.conf": "\"Boot\" \"root=UUID=0 ro\"\n"}), refused: true, never: noFiles[1:2], want: []string{"/boot/refind_linux.conf"}},
		{name: "entries with $kernelopts", files: bare("rhel", "Red Hat Enterprise Linux 8.10", map[string]string{
			"etc/default/grub": "GRUB_ENABLE_BLSCFG=true\nGRUB_CMDLINE_LINUX=\"quiet\"\n", "usr/sbin/grub2-mkconfig": gnuMkconfig, "usr/bin/dracut": "",
			"boot/loader/entries/a.conf": "title RHEL\nlinux /vmlinuz\noptions $kernelopts $tuned_params\n", "boot/grub2/grubenv": environment("kernelopts=root=/dev/sda1 ro iommu=pt\n"),
		}), refused: true, want: []string{"+kernelopts=root=/dev/sda1 ro iommu=pt intel_iommu=on iommu=nopt", "/boot/grub2/grubenv line 2: iommu=pt contradicts"}},
		{name: "an OSTree entry with a conflict", files: bare("fedora", "Fedora CoreOS 42", merged(bootc, "boot/loader/entries/ostree-1.conf", "options ostree=/ostree/boot.1 intremap=off\nlinux /vmlinuz\n")), refused: true, want: []string{"/boot/loader/entries/ostree-1.conf line 1: intremap=off", "rpm-ostree kargs --delete-if-present=intremap=off"}},
		{name: "Limine", files: bare("arch", "CachyOS", map[string]string{"boot/limine.conf": "timeout: 5\n"}), refused: true, want: []string{"KERNEL_CMDLINE of /etc/default/limine"}},
	}
}

// merged is a copy of files with one more.
func merged(files map[string]string, name, content string) map[string]string {
	all := maps.Clone(files)
	all[name] = content
	return all
}

// withoutFile is a copy of files without those whose name begins so.
func withoutFile(files map[string]string, prefix string) map[string]string {
	all := maps.Clone(files)
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, prefix) })
	return all
}

const systemdBoot = "\x06\x00\x00\x00systemd-boot 257"

// loaderHosts are nodes whose boot loader bootstrap configures.
func loaderHosts() []reportedHost {
	const loaderInfo = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	proxmox := debian("debian", "12", "", debianGrub, map[string]string{
		"etc/kernel/cmdline": "root=ZFS=rpool/ROOT/pve-1 boot=zfs\n", "etc/kernel/proxmox-boot-uuids": "0000-0001\n0000-0002\n", "usr/sbin/proxmox-boot-tool": "", "proc/cmdline": "root=ZFS=rpool/ROOT/pve-1\n",
	})
	microOS := bare("opensuse-microos", "openSUSE MicroOS", map[string]string{
		"etc/default/grub": debianGrub, "usr/sbin/grub2-mkconfig": gnuMkconfig, "boot/grub2/grub.cfg": "# generated\n", "usr/sbin/transactional-update": "", "usr/bin/dracut": "",
	})
	armbian := bare("debian", "Armbian 24.8", map[string]string{
		"usr/bin/env": arm64, "boot/armbianEnv.txt": "verbosity=1\nextraargs=apparmor=1\n", "boot/boot.scr": "", "usr/sbin/update-initramfs": "", "sys/firmware/acpi/tables/DMAR": "",
	})
	return []reportedHost{
		{name: "openSUSE MicroOS by sdbootutil", files: bare("opensuse-microos", "openSUSE MicroOS", map[string]string{
			"usr/bin/dracut": "", "usr/sbin/transactional-update": "", "usr/bin/sdbootutil": "", "etc/kernel/cmdline": "root=UUID=0 quiet\n", "boot/efi/loader/entries/opensuse-1.conf": entry,
		}), want: []string{"+root=UUID=0 quiet intel_iommu=on iommu=nopt", "step BootConfig: /usr/bin/sdbootutil update-all-entries"}, never: []string{"/boot/efi/loader/entries/opensuse-1.conf change"}},
		{name: "openSUSE MicroOS by sdbootutil, without a file of arguments", files: bare("opensuse-microos", "openSUSE MicroOS", map[string]string{
			"usr/bin/dracut": "", "usr/bin/sdbootutil": "", "boot/efi/loader/entries/opensuse-1.conf": entry,
		}), want: []string{"/boot/efi/loader/entries/opensuse-1.conf change"}, never: []string{"update-all-entries"}},
		{name: "Garden Linux", files: bare("gardenlinux", "Garden Linux 1592", map[string]string{
			"usr/bin/dracut": "", "etc/kernel/cmdline.d/10-default.cfg": "CMDLINE_LINUX=\"ro\"\n", "etc/kernel/cmdline": "root=gpt-auto ro\n", "efi/loader/entries/Default-1.conf": entry,
		}), want: []string{"/etc/kernel/cmdline.d/zz-kata-vfio.cfg create", "+root=gpt-auto ro intel_iommu=on iommu=nopt", "/efi/loader/entries/Default-1.conf change"}},
		{name: "Garden Linux with a conflict in a fragment", files: bare("gardenlinux", "Garden Linux 1592", map[string]string{
			"usr/bin/dracut": "", "etc/kernel/cmdline.d/10-default.cfg": "CMDLINE_LINUX=\"ro iommu=pt\"\n", "efi/loader/entries/Default-1.conf": entry,
		}), refused: true, want: []string{"/etc/kernel/cmdline.d/10-default.cfg line 1: iommu=pt contradicts"}},
		{name: "Alpine", files: bare("alpine", "Alpine Linux v3.21", map[string]string{
			"etc/update-extlinux.conf": "overwrite=1\ndefault_kernel_opts=\"quiet\"\n", "sbin/update-extlinux": "", "boot/extlinux.conf": "LABEL lts\n  LINUX vmlinuz-lts\n  APPEND root=UUID=0 quiet\n",
		}), want: []string{"/etc/update-extlinux.conf change", "step BootConfig: /sbin/update-extlinux"}, never: []string{"/boot/extlinux.conf change"}},
		{name: "Alpine with a conflict", files: bare("alpine", "Alpine Linux v3.21", map[string]string{
			"etc/update-extlinux.conf": "overwrite=1\ndefault_kernel_opts=\"quiet iommu=pt\"\n", "sbin/update-extlinux": "", "boot/extlinux.conf": "LABEL lts\n  LINUX vmlinuz-lts\n  APPEND root=UUID=0 quiet iommu=pt\n",
		}), refused: true, want: []string{"/etc/update-extlinux.conf line 2: iommu=pt contradicts"}},
		{name: "Alpine that keeps its own extlinux.conf", files: bare("alpine", "Alpine Linux v3.21", map[string]string{
			"etc/update-extlinux.conf": "overwrite=0\ndefault_kernel_opts=\"quiet\"\n", "sbin/update-extlinux": "", "boot/extlinux.conf": "LABEL lts\n  LINUX vmlinuz-lts\n  APPEND root=UUID=0 quiet\n",
		}), want: []string{"/boot/extlinux.conf change"}, never: []string{"/etc/update-extlinux.conf change"}},
		{name: "Proxmox with systemd-boot", files: merged(proxmox, loaderInfo, systemdBoot), want: []string{"+root=ZFS=rpool/ROOT/pve-1 boot=zfs intel_iommu=on iommu=nopt", "step BootConfig: /usr/sbin/proxmox-boot-tool refresh"}, never: []string{"/etc/default/grub.d/zz-kata-vfio.cfg", "mount the EFI"}},
		{name: "Proxmox with GRUB", files: proxmox, want: []string{"/etc/default/grub.d/zz-kata-vfio.cfg create", "step BootConfig: /usr/sbin/proxmox-boot-tool refresh"}, never: []string{"/etc/kernel/cmdline change"}},
		{name: "Proxmox, an image", files: proxmox, image: true, want: []string{"/etc/kernel/cmdline change", "proxmox-boot-tool refresh", "run bootstrap again on the running node"}, never: []string{"/etc/default/grub.d/zz-kata-vfio.cfg"}},
		{name: "Proxmox without its tool", files: withoutFile(proxmox, "usr/sbin/proxmox-boot-tool"), refused: true, want: []string{"install the package proxmox-kernel-helper"}},
		{name: "Harvester's own iommu=pt", files: bare("sle-micro-rancher", "Harvester v1.4.1", map[string]string{"proc/cmdline": "cos-img/filename=/cOS/active.img intel_iommu=on iommu=pt\n"}), refused: true, want: []string{"its arguments are those of Harvester"}, never: []string{"no known file"}},
		{name: "openSUSE MicroOS", files: microOS, fields: "kernel: {earlyBinding: true}\nvfio: {keepOff: ['0000:2e:00.0']}\n", want: []string{"/etc/default/grub change", "transactional-update --non-interactive grub.cfg", "transactional-update --non-interactive --continue initrd"}, never: []string{"grub2-mkconfig", "dracut --regenerate-all"}},
		{name: "Armbian", files: armbian, image: true, want: []string{"+extraargs=apparmor=1 iommu.passthrough=0"}},
		{name: "Armbian with passthrough in extraargs", files: merged(armbian, "boot/armbianEnv.txt", "extraargs=iommu.passthrough=1\n"), image: true, refused: true, want: []string{"/boot/armbianEnv.txt line 1: iommu.passthrough=1 contradicts"}},
	}
}

// initramfsHosts are nodes with early binding.
func initramfsHosts() []reportedHost {
	const early = "kernel: {earlyBinding: true}\nvfio: {keepOff: ['0000:2e:00.0']}\n"
	arch := map[string]string{"boot/loader/entries/arch.conf": entry}
	mkinitcpio := with(arch, map[string]string{
		"usr/bin/mkinitcpio": "#!/bin/bash\n_d_config=\"${_f_config}.d\"\n", "etc/mkinitcpio.conf": "MODULES=()\nHOOKS=(base udev autodetect modconf block filesystems)\n",
		"etc/mkinitcpio.d/linux.preset": "#ALL_config=\"/etc/mkinitcpio.conf\"\nPRESETS=('default')\n",
	})
	return []reportedHost{
		{name: "initramfs-tools", files: debian("debian", "13", "", debianGrub, map[string]string{"usr/share/initramfs-tools/hook-functions": "", "usr/bin/dracut": ""}), image: true, fields: early, want: []string{"/etc/initramfs-tools/hooks/kata-vfio create", "update-initramfs -u -k all"}, never: []string{"dracut.conf.d"}},
		{name: "dracut with a program update-initramfs", files: debian("ubuntu", "26.04", "debian", debianGrub, map[string]string{"usr/bin/dracut": ""}), image: true, fields: early, want: []string{"/etc/dracut.conf.d/50-kata-vfio.conf create", "dracut --regenerate-all --force"}, never: []string{"initramfs-tools/hooks", "update-initramfs -u"}},
		{name: "mkinitcpio", files: bare("arch", "Arch Linux", mkinitcpio), image: true, fields: early, want: []string{"/etc/mkinitcpio.conf.d/zz-kata-vfio.conf create", "+MODULES+=(vfio_pci)", "/etc/udev/rules.d/10-kata-vfio.rules", "mkinitcpio -P"}, never: []string{"update-initramfs -u"}},
		{name: "mkinitcpio with the hook systemd in a drop-in", files: bare("arch", "Arch Linux", with(mkinitcpio, map[string]string{"etc/mkinitcpio.conf": "HOOKS=(base)\n", "etc/mkinitcpio.conf.d/a.conf": "HOOKS=(base\n  systemd)\n"})), image: true, fields: early, want: []string{"zz-kata-vfio.conf create"}},
		{name: "mkinitcpio without udev", files: bare("arch", "Arch Linux", merged(mkinitcpio, "etc/mkinitcpio.conf", "# HOOKS=(udev)\nHOOKS=(base block)\n")), image: true, fields: early, refused: true, want: []string{"HOOKS of mkinitcpio has neither udev nor systemd"}},
		{name: "mkinitcpio before drop-ins", files: bare("arch", "Arch Linux", merged(mkinitcpio, "usr/bin/mkinitcpio", "#!/bin/bash\n_f_config=mkinitcpio.conf\n")), image: true, fields: early, refused: true, want: []string{"install mkinitcpio 36 or newer"}},
		{name: "mkinitcpio's preset with a configuration", files: bare("arch", "Arch Linux", merged(mkinitcpio, "etc/mkinitcpio.d/linux.preset", "#default_config=\"/x\"\nALL_config=\"/etc/mkinitcpio.conf\"\n")), image: true, fields: early, refused: true, want: []string{"/etc/mkinitcpio.d/linux.preset line 2 sets ALL_config"}},
		{name: "booster", files: bare("arch", "Arch Linux", merged(arch, "usr/bin/booster", "")), image: true, fields: early, refused: true, want: []string{"booster runs no udev", "\"modules: -DRIVER\" to /etc/booster.yaml, run /usr/lib/booster/regenerate_images"}, never: []string{"update-initramfs -u"}},
		{name: "an unknown generator", files: bare("void", "Void", arch), image: true, fields: early, refused: true, want: []string{"which bootstrap does not know"}, never: []string{"update-initramfs -u"}},
	}
}

// nextBootHosts are nodes with arguments in places that are easy to miss.
func nextBootHosts() []reportedHost {
	rhel := files("RHEL 9")
	grub := func(name, content string) map[string]string {
		return debian("debian", "12", "", debianGrub, map[string]string{name: content, "proc/cmdline": "ro quiet\n"})
	}
	return []reportedHost{
		{name: "a later fragment that replaces the variable", files: grub("etc/default/grub.d/60-x.cfg", "GRUB_CMDLINE_LINUX=\"net.ifnames=0\"\n"), want: []string{"/etc/default/grub.d/zz-kata-vfio.cfg create"}, never: []string{"60-x.cfg line"}},
		{name: "a fragment after bootstrap's that replaces the variable", files: grub("etc/default/grub.d/zzz.cfg", "\nGRUB_CMDLINE_LINUX=\"net.ifnames=0\"\n"), refused: true, want: []string{"/etc/default/grub.d/zzz.cfg line 2 sets GRUB_CMDLINE_LINUX after /etc/default/grub.d/zz-kata-vfio.cfg does, without intel_iommu=on iommu=nopt"}},
		{name: "a fragment after bootstrap's that appends", files: grub("etc/default/grub.d/zzz.cfg", "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX net.ifnames=0\"\n"), never: []string{"zzz.cfg line"}},
		{name: "a conflict that a fragment replaces", files: grub("etc/default/grub.d/50-cloud.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=\"console=ttyS0\"\n"), never: []string{"contradicts"}},
		{name: "a conflict on a continued line", files: grub("etc/default/grub.d/50-x.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet \\\niommu=pt\"\n"), refused: true, want: []string{"/etc/default/grub.d/50-x.cfg line 2: iommu=pt contradicts"}},
		{name: "a conflict in a default", files: grub("etc/default/grub.d/50-x.cfg", ": ${GRUB_CMDLINE_LINUX_RECOVERY:=single}\n: ${GRUB_CMDLINE_LINUX:='intremap=off'}\n"), refused: true, want: []string{"/etc/default/grub.d/50-x.cfg line 2: intremap=off"}},
		{name: "tuned", files: merged(rhel, "etc/tuned/bootcmdline", "TUNED_BOOT_CMDLINE=\"skew_tick=1 iommu=pt\"\n"), refused: true, want: []string{"/etc/tuned/bootcmdline line 1: iommu=pt contradicts", "of the active tuned profile"}},
		{name: "tuned's arguments in GRUB's environment", files: merged(rhel, "boot/grub2/grubenv", "# GRUB Environment Block\ntuned_params=skew_tick=1 intel_iommu=off\n"), refused: true, want: []string{"/boot/grub2/grubenv line 2: intel_iommu=off"}},
	}
}

// iort is Arm's table with nodes of these kinds.
func iort(kinds ...byte) string {
	table := "IORT" + strings.Repeat("\x00", 32) + string([]byte{byte(len(kinds)), 0, 0, 0, 48, 0, 0, 0}) + strings.Repeat("\x00", 4)
	for _, kind := range kinds {
		table += string([]byte{kind, 16, 0}) + strings.Repeat("\x00", 13)
	}
	return table
}

// firmwareHosts are running nodes whose kernel drives no IOMMU.
func firmwareHosts() []reportedHost {
	const tables = "sys/firmware/acpi/tables/"
	node := func(more map[string]string) map[string]string {
		all := withoutFile(withoutFile(debian("debian", "12", "", debianGrub, map[string]string{"proc/cmdline": "ro quiet\n"}), "sys/class/iommu/"), tables)
		maps.Copy(all, more)
		return all
	}
	none := map[string]string{tables + "FACP": "FACP"}
	xen := map[string]string{tables + "FACP": "FACP", "proc/xen/capabilities": "control_d\n", "sys/hypervisor/type": "xen\n"}
	guest := map[string]string{tables + "FACP": "FACP", "proc/cpuinfo": "flags\t\t: fpu vmx hypervisor\n"}
	arm := func(table string) map[string]string {
		return node(map[string]string{tables + "IORT": table, "usr/bin/env": arm64, "usr/lib/systemd/systemd": arm64, "proc/cpuinfo": "Features\t: fp asimd\n"})
	}
	const firmwareSetup = "in the firmware setup"
	return []reportedHost{
		{name: "no table", files: node(none), refused: true, want: []string{"the firmware describes no IOMMU", "Intel VT for Directed I/O"}},
		{name: "AMD's IOMMU is described, not used", files: node(map[string]string{tables + "IVRS": "IVRS" + strings.Repeat("\x00", 60), "proc/cpuinfo": "flags\t\t: fpu svm\n"}), want: []string{"(ACPI table IVRS), but the kernel uses none", "AMD-Vi"}},
		{name: "Intel's IOMMU is described, not switched on yet", files: node(map[string]string{tables + "DMAR": kernel()[tables+"DMAR"]}), never: []string{"uses none", "virtual machine"}},
		{name: "Arm's table without an SMMU", files: arm(iort(0, 2)), refused: true, want: []string{"the kernel drives no SMMU, because the firmware describes none", "enable the SMMU"}, never: []string{"VT-d"}},
		{name: "Arm's table with an SMMU that is not used", files: arm(iort(0, 2, 4)), want: []string{"the firmware describes an SMMU (ACPI table IORT), but the kernel drives no SMMU", "enable the SMMU"}, never: []string{"VT-d"}},
		{name: "Arm's SMMU in use", files: merged(arm(iort(4)), "sys/class/iommu/smmu3.0x1/uevent", ""), never: []string{"drives no SMMU"}},
		{name: "Xen's dom0", files: node(xen), refused: true, want: []string{"Xen owns the IOMMU", "without Xen"}, never: []string{firmwareSetup}},
		{name: "an image that Xen starts", files: debian("debian", "12", "", debianGrub, map[string]string{"etc/default/grub.d/xen.cfg": "GRUB_CMDLINE_XEN_DEFAULT=\"dom0_mem=4G\"\n"}), image: true, want: []string{"If Xen starts the node, Xen owns the IOMMU"}},
		{name: "an image with Xen and arguments for it", files: debian("debian", "12", "", debianGrub, map[string]string{"etc/default/grub.d/xen.cfg": "GRUB_CMDLINE_XEN=\"loglvl=all\"\n", "boot/xen-4.17-amd64.gz": ""}), image: true, want: []string{"If Xen starts the node, Xen owns the IOMMU"}},
		{name: "an image with openSUSE's settings for Xen, without Xen", files: debian("debian", "12", "", debianGrub+"GRUB_CMDLINE_XEN_DEFAULT=\"vga=gfx-1024x768x16\"\n", map[string]string{"boot/xenon.conf": ""}), image: true, never: []string{"Xen"}},
		{name: "a virtual machine", files: node(guest), refused: true, want: []string{"the node is a virtual machine", "virtual IOMMU"}, never: []string{firmwareSetup}},
		{name: "a virtual machine on Arm", files: merged(merged(arm(iort(0, 2)), "sys/class/dmi/id/sys_vendor", "QEMU\n"), "proc/cpuinfo", "CPU implementer\t: 0x41\n"), refused: true, want: []string{"iommu=smmuv3"}, never: []string{"VT-d", "intel-iommu"}},
		{name: "a guest of Xen", files: node(map[string]string{tables + "FACP": "FACP", "sys/hypervisor/type": "xen\n"}), refused: true, want: []string{"the node is a virtual machine"}, never: []string{firmwareSetup}},
		{name: "a virtual machine with an IOMMU that is not used", files: node(map[string]string{tables + "IVRS": "IVRS" + strings.Repeat("\x00", 60), "proc/cpuinfo": "flags\t\t: fpu svm hypervisor\n"}), want: []string{"virtual IOMMU"}, never: []string{firmwareSetup}},
		{name: "a virtual machine without nested virtualization", files: node(merged(guest, "proc/cpuinfo", "flags\t\t: fpu hypervisor\n")), refused: true, want: []string{"enable nested virtualization"}, never: []string{"SVM Mode"}},
	}
}

// moduleHosts are nodes whose files bind functions by ID, or run a command when vfio-pci is loaded.
func moduleHosts() []reportedHost {
	node := func(name, content string) map[string]string {
		return debian("debian", "12", "", debianGrub, map[string]string{name: content, "proc/cmdline": "ro quiet\n"})
	}
	return []reportedHost{
		{name: "IDs of vfio-pci in initramfs-tools' modules", files: node("etc/initramfs-tools/modules", "# List\nvfio\nvfio_pci ids=10de:2204,10de:1aef\n"), refused: true, want: []string{"/etc/initramfs-tools/modules line 3: vfio-pci binds every function with these IDs", "remove the line: vfio_pci ids="}},
		{name: "modules without options in initramfs-tools' modules", files: node("etc/initramfs-tools/modules", "vfio\nvfio_pci\n"), never: []string{"initramfs-tools/modules"}},
		{name: "a command in place of vfio-pci", files: node("etc/modprobe.d/vfio.conf", "install vfio-pci /usr/local/bin/override.sh\n"), refused: true, want: []string{"/etc/modprobe.d/vfio.conf line 1: it runs a command whenever vfio_pci is loaded"}},
		{name: "a command in place of another module", files: node("etc/modprobe.d/vfio.conf", "install snd_hda_intel /usr/local/bin/x.sh\n"), never: []string{"runs a command"}},
	}
}

// vfHosts are nodes on which other programs set numbers of VFs.
func vfHosts() []reportedHost {
	const fields = "virtualFunctions: [{pf: '0000:5e:00.0', count: 8}]\n"
	node := func(name, content string) map[string]string {
		return debian("debian", "12", "", debianGrub, map[string]string{name: content})
	}
	all := []reportedHost{{
		name: "a udev rule for the VFs of another PF", image: true, fields: fields, never: []string{"also sets a number of VFs"},
		files: node("etc/udev/rules.d/99-vfs.rules", "ACTION==\"add\", KERNELS==\"0000:af:00.0\", ATTR{device/sriov_numvfs}=\"4\"\n"),
	}}
	for name, c := range map[string]struct{ file, content, line string }{
		"udev":           {"etc/udev/rules.d/99-vfs.rules", "# VFs\nACTION==\"add\", KERNELS==\"0000:5e:00.0\", ATTR{device/sriov_numvfs}=\"4\"\n", "2"},
		"a link file":    {"etc/systemd/network/10-pf.link", "[Match]\nOriginalName=ens1\n[SR-IOV]\n[Link]\nSR-IOVVirtualFunctions=4\n", "5"},
		"sysfsutils":     {"etc/sysfs.conf", "class/net/ens1/device/sriov_numvfs = 4\n", "1"},
		"tmpfiles":       {"etc/tmpfiles.d/vfs.conf", "w /sys/class/net/ens1/device/sriov_numvfs - - - - 4\n", "1"},
		"a service":      {"etc/systemd/system/vfs.service", "[Service]\nExecStart=/bin/sh -c 'echo 4 > /sys/class/net/ens1/device/sriov_numvfs'\n", "2"},
		"netplan":        {"etc/netplan/50-vfs.yaml", "network:\n  ethernets:\n    ens1:\n      virtual-function-count: 4\n", "4"},
		"NetworkManager": {"etc/NetworkManager/system-connections/ens1.nmconnection", "[sriov]\ntotal-vfs=4\n", "2"},
		"a driver":       {"etc/modprobe.d/ixgbe.conf", "options ixgbe max_vfs=4\n", "1"},
	} {
		all = append(all, reportedHost{name: "VFs also set by " + name, image: true, fields: fields, files: node(c.file, c.content), want: []string{"/" + c.file + " line " + c.line + " also sets a number of VFs"}})
	}
	return all
}

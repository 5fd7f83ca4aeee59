package bootstrap_test

import (
	"maps"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
)

// distribution has the relevant files of a distribution's node.
type distribution struct {
	name   string
	loader host.LoaderKind
	files  map[string]string
}

const (
	amd64 = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x3e\x00"
	arm64 = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"

	debianMkconfig = "#!/bin/sh\nfor x in ${sysconfdir}/default/grub.d/*.cfg ; do . \"$x\"; done\n"
	gnuMkconfig    = "#!/bin/sh\n. ${sysconfdir}/default/grub\n"
)

// kataBase is short for what Kata ships.
const kataBase = "[hypervisor.qemu]\npath = \"/opt/kata/bin/qemu-system-x86_64\"\ncold_plug_vfio = \"root-port\"\ndefault_memory = 8192\n" +
	"shared_fs = \"virtio-fs\"\nvirtio_fs_daemon = \"/opt/kata/libexec/virtiofsd\"\n[agent.kata]\n[runtime]\n"

// kernel is a running kernel on a machine that is fit.
func kernel() map[string]string {
	return map[string]string{
		"usr/lib/systemd/systemd": amd64, "opt/kata/VERSION": "4.1.0\n", "opt/kata/bin/containerd-shim-kata-v2": "ELF", "opt/kata/libexec/virtiofsd": "ELF",
		"opt/kata/share/defaults/kata-containers/configuration-qemu-nvidia-gpu.toml": kataBase,
		"usr/lib/systemd/system/containerd.service":                                  "[Service]\nExecStart=/usr/bin/containerd\n",
		"proc/cpuinfo":                   "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vmx\n",
		"proc/meminfo":                   "MemTotal: 1 kB\nHugepagesize:       2048 kB\n",
		"proc/sys/kernel/osrelease":      "6.12.9-1\n",
		"proc/sys/kernel/random/boot_id": "b0",
		"sys/class/iommu/dmar0/address":  "0\n",
		"sys/firmware/acpi/tables/DMAR":  "DMAR" + strings.Repeat("\x00", 33) + "\x01" + strings.Repeat("\x00", 10),
		"usr/lib/modules/6.12.9-1/modules.dep": "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz\n" +
			"kernel/drivers/vfio/vfio_iommu_type1.ko.xz:\nkernel/drivers/iommu/iommufd/iommufd.ko.xz:\n" +
			"kernel/net/xfrm/xfrm_user.ko.xz:\nkernel/net/sched/sch_ingress.ko.xz:\nkernel/net/sched/act_mirred.ko.xz:\nkernel/net/sched/cls_u32.ko.xz:\n" +
			"kernel/drivers/vhost/vhost_vsock.ko.xz:\n",
		"usr/lib/modules/6.12.9-1/modules.builtin": "kernel/fs/ext4/ext4.ko\nkernel/net/netfilter/nfnetlink.ko\n",
		"usr/bin/env":                amd64,
		"usr/bin/containerd":         "",
		"etc/containerd/config.toml": "version = 3\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "4\n",
		"etc/modprobe.d/nouveau.conf":                              "blacklist nouveau\n",
		"etc/modprobe.d/nvidia.conf":                               "-> /etc/alternatives/nvidia", "etc/alternatives/nvidia": "-> /etc/nvidia/modprobe.conf",
		"etc/nvidia/modprobe.conf": "options nvidia x=1\n", "etc/modprobe.d/masked.conf": "-> /dev/null", "usr/lib/modprobe.d/masked.conf": "blacklist vfio_pci\n",
	}
}

func osRelease(id, version, like string) string {
	return "PRETTY_NAME=\"" + id + " " + version + "\"\nID=" + id + "\nVERSION_ID=\"" + version + "\"\nID_LIKE=\"" + like + "\"\n"
}

func with(layers ...map[string]string) map[string]string {
	all := kernel()
	for _, l := range layers {
		maps.Copy(all, l)
	}
	return all
}

// debian is one of the family: GRUB with fragments, update-initramfs.
func debian(id, version, like, defaults string, more map[string]string) map[string]string {
	return with(map[string]string{
		"etc/os-release": osRelease(id, version, like), "etc/default/grub": defaults,
		"usr/sbin/grub-mkconfig": debianMkconfig, "usr/sbin/update-grub": "#!/bin/sh\n", "usr/sbin/update-initramfs": "#!/bin/sh\n",
		"usr/lib/systemd/systemd-networkd": "", "boot/grub/grub.cfg": "linux /vmlinuz root=/dev/sda1 ro  quiet\n",
	}, more)
}

const debianGrub = "# If you change this file, run 'update-grub' afterwards\nGRUB_DEFAULT=0\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n"

const entry = "title Linux\nversion 6.12.9-1\nlinux /vmlinuz-6.12.9-1\ninitrd /initramfs.img $tuned_initrd\noptions root=/dev/sda1 ro crashkernel=1G $tuned_params\ngrub_users $grub_users\n"

func distributions() []distribution {
	rhelGrub := "GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX=\"crashkernel=1G\"\nGRUB_ENABLE_BLSCFG=true\n"
	cloud := map[string]string{
		"etc/default/grub.d/50-cloudimg-settings.cfg": "GRUB_CMDLINE_LINUX_DEFAULT=\"console=tty1 console=ttyS0\"\n",
		"boot/grub/grub.cfg":                          "linux /vmlinuz root=/dev/sda1 ro  console=tty1 console=ttyS0\n",
	}
	uBoot := map[string]string{
		"etc/os-release": osRelease("debian", "13", ""), "usr/bin/env": arm64, "usr/sbin/update-initramfs": "#!/bin/sh\n",
		"usr/sbin/u-boot-update": "#!/bin/sh\nfor file in /usr/share/u-boot-menu/conf.d/*.conf /etc/u-boot-menu/conf.d/*.conf\n",
		"etc/default/u-boot":     "## /etc/default/u-boot\n#U_BOOT_UPDATE=\"true\"\n", "boot/extlinux/extlinux.conf": "append root=/dev/sda1 ro quiet\n",
	}
	return []distribution{
		{"Debian 12", host.GRUB, debian("debian", "12", "", debianGrub, nil)},
		{"Debian 13", host.GRUB, debian("debian", "13", "", debianGrub, map[string]string{"usr/sbin/NetworkManager": ""})},
		{"Debian 13, no line break at the end of grub's file", host.GRUB, debian("debian", "13", "", strings.TrimSuffix(debianGrub, "\n"), nil)},
		{"Debian 13, systemd-boot", host.Entries, with(map[string]string{
			"etc/os-release": osRelease("debian", "13", ""), "boot/efi/loader/entries/id-6.12.9-1.conf": entry, "usr/sbin/update-initramfs": "",
			"boot/efi/loader/entries/memtest.conf": "title Memory test\nefi /memtest.efi\n",
		})},
		{"Ubuntu 22.04", host.GRUB, debian("ubuntu", "22.04", "debian", debianGrub, cloud)},
		{"Ubuntu 24.04", host.GRUB, debian("ubuntu", "24.04", "debian", debianGrub, cloud)},
		{"Ubuntu 26.04, dracut", host.GRUB, debian("ubuntu", "26.04", "debian", debianGrub, map[string]string{"usr/bin/dracut": ""})},
		{"RHEL 9", host.GRUBEntries, with(map[string]string{
			"etc/os-release": osRelease("rhel", "9.6", "fedora"), "etc/default/grub": rhelGrub, "usr/sbin/grub2-mkconfig": gnuMkconfig,
			"usr/sbin/grubby": "", "usr/bin/dracut": "", "boot/grub2/grub.cfg": "blscfg\n", "usr/sbin/NetworkManager": "",
			"boot/loader/entries/m-5.14.0.conf": entry, "boot/loader/entries/m-0-rescue.conf": entry,
		})},
		{"Fedora", host.GRUBEntries, with(map[string]string{
			"etc/os-release": osRelease("fedora", "44", ""), "etc/default/grub": rhelGrub, "usr/bin/grub2-mkconfig": gnuMkconfig,
			"usr/bin/dracut": "", "boot/grub2/grub.cfg": "blscfg\n", "usr/lib/systemd/systemd-networkd": "",
			"boot/loader/entries/m-6.12.conf": entry, "etc/kernel/cmdline": "root=/dev/sda1 ro\n",
		})},
		{"openSUSE", host.GRUB, with(map[string]string{
			"etc/os-release": osRelease("opensuse-leap", "16.0", "suse opensuse"), "etc/default/grub": debianGrub, "usr/sbin/grub2-mkconfig": gnuMkconfig,
			"usr/bin/dracut": "", "boot/grub2/grub.cfg": "linux /vmlinuz root=/dev/sda1 ro  quiet\n",
		})},
		{"Flatcar", host.Flatcar, with(map[string]string{
			"etc/os-release": osRelease("flatcar", "4081.2.0", "coreos"), "oem/grub.cfg": "set oem_id=\"qemu\"\nset linux_append=\"\"\n",
			"usr/lib/systemd/systemd-networkd": "",
		})},
		{"Debian 13 on arm64, u-boot-menu", host.UBootMenu, with(uBoot)},
		{"Debian 11 on arm64, u-boot-menu", host.UBootMenu, with(uBoot, map[string]string{
			"usr/sbin/u-boot-update": "#!/bin/sh\n. /etc/default/u-boot\n", "etc/default/u-boot": "U_BOOT_PARAMETERS=\"ro console=ttyS0\"\n",
			"boot/extlinux/extlinux.conf": "append root=/dev/sda1 ro console=ttyS0\n",
		})},
		{"Debian 13 on arm64, u-boot-menu by kernel/cmdline", host.UBootMenu, with(uBoot, map[string]string{
			"etc/kernel/cmdline": "ro console=ttyS0\n", "boot/extlinux/extlinux.conf": "append root=/dev/sda1 ro console=ttyS0\n",
		})},
		{"extlinux", host.Extlinux, with(map[string]string{
			"etc/os-release": osRelease("other", "1", ""), "boot/extlinux/extlinux.conf": "LABEL l0\n\tlinux /vmlinuz\n\tappend root=/dev/sda1 ro\nLABEL l1\n\tlinux /old\n\tAPPEND root=/dev/sda1 single\n",
		})},
	}
}

// files are those of the distribution with a name.
func files(name string) map[string]string {
	for _, d := range distributions() {
		if d.name == name {
			return d.files
		}
	}
	panic("no distribution " + name)
}

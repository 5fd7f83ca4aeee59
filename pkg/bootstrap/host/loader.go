package host

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// LoaderKind says how kernels get their command line.
type LoaderKind string

// Kinds. An unknown loader can't be configured by bootstrap.
const (
	// GRUB: its configuration is generated from etc/default/grub.
	GRUB LoaderKind = "GRUB"
	// GRUBEntries: GRUB reads entries of the Boot Loader Specification.
	GRUBEntries LoaderKind = "GRUB with boot loader entries"
	// Entries: another loader, usually systemd-boot, reads the entries.
	Entries LoaderKind = "systemd-boot"
	// SDBootUtil: openSUSE's sdbootutil writes the entries from Cmdline.
	SDBootUtil LoaderKind = "systemd-boot by sdbootutil"
	// UnifiedImages: the command line is in the signed image of each kernel.
	UnifiedImages LoaderKind = "unified kernel images"
	// UBootMenu: Debian's u-boot-menu generates extlinux.conf.
	UBootMenu LoaderKind = "u-boot-menu"
	// Extlinux: an extlinux.conf that no tool generates.
	Extlinux LoaderKind = "extlinux"
	// UpdateExtlinux: Alpine's update-extlinux generates extlinux.conf.
	UpdateExtlinux LoaderKind = "update-extlinux"
	Flatcar        LoaderKind = "Flatcar's GRUB"
	// Proxmox: proxmox-boot-tool copies kernels and their command line to several partitions that are not mounted.
	Proxmox LoaderKind = "proxmox-boot-tool"
	// Armbian: U-Boot reads armbianEnv.txt.
	Armbian LoaderKind = "Armbian's U-Boot"
	// A tool of the system sets the kernel's arguments for the following loaders: see [Managed].
	Talos        LoaderKind = "Talos"
	Bottlerocket LoaderKind = "Bottlerocket"
	COS          LoaderKind = "Container-Optimized OS"
	NixOS        LoaderKind = "NixOS"
	Harvester    LoaderKind = "Harvester"
	Elemental    LoaderKind = "Elemental"
	UbuntuCore   LoaderKind = "Ubuntu Core"
	OpenShift    LoaderKind = "OpenShift's OSTree"
	OSTree       LoaderKind = "OSTree"
	ABRoot       LoaderKind = "ABRoot"
	Kernelstub   LoaderKind = "kernelstub"
	// KernelOptions: the entries of RHEL 8 refer to a variable in GRUB's environment. If bootstrap can't edit the variable, the
	// loader is [Managed].
	KernelOptions LoaderKind = "GRUB with kernelopts"
	Limine        LoaderKind = "Limine"
	REFInd        LoaderKind = "rEFInd"
	// Unmounted: systemd-boot started the node, but its partition is not mounted.
	Unmounted LoaderKind = "systemd-boot on a partition that is not mounted"
	Unknown   LoaderKind = "unknown"
)

// Loader is the boot loader and its existing files.
type Loader struct {
	Kind LoaderKind
	// Defaults is the file of settings: etc/default/grub, etc/default/u-boot,
	// Flatcar's grub.cfg.
	Defaults string
	// DropIns is the directory of fragments that the tool reads after Defaults, or empty if it reads none.
	DropIns string
	// Tool generates Config, run with Arguments. It is empty if none is needed or none is installed.
	Tool      string
	Arguments []string
	Config    string
	// Environment is GRUB's environment block, with links followed, that sets kernelopts.
	Environment string
	// EntryFiles are the boot loader's entries. Each has a command line.
	EntryFiles []string
	// Cmdline is the file from which kernel-install takes the command line of later kernels: etc/kernel/cmdline, or
	// usr/lib/kernel/cmdline, which must not be edited.
	Cmdline string
	// Managed is set if a tool of the system sets the arguments. The files above are then only read.
	Managed *Managed
}

// Generated reports whether a tool generates the configuration that the loader reads.
func (l *Loader) Generated() bool {
	return slices.Contains([]LoaderKind{GRUB, UBootMenu, Proxmox, SDBootUtil, UpdateExtlinux}, l.Kind)
}

func (r *reader) loader(system *OS, live bool, cmdline string) Loader {
	if l, ok := r.managed(system, cmdline); ok {
		return l
	}
	switch {
	// Proxmox nodes also have GRUB's files, so this comes before GRUB.
	case r.any("etc/kernel/proxmox-boot-uuids"):
		return r.proxmox(live)
	case system.ID == "flatcar":
		return Loader{Kind: Flatcar, Defaults: r.first(kernelargs.OEM, kernelargs.VendorOEM)}
	// GRUB's files may be left from another loader. The firmware variable names the loader that started the node.
	case live && r.startedBySystemdBoot():
		if l := r.entriesOrImages(); l.Kind != "" {
			return l
		}
		return Loader{Kind: Unmounted}
	}
	// u-boot-menu and update-extlinux generate an extlinux.conf, so they come before the loader that has only that file.
	for _, find := range []func() Loader{r.grub, r.entriesOrImages, r.uBootMenu, r.updateExtlinux, r.extlinux, r.armbian} {
		if l := find(); l.Kind != "" {
			return l
		}
	}
	return Loader{Kind: Unknown}
}

// startedBySystemdBoot reads the variable in which a loader stores its name (https://systemd.io/BOOT_LOADER_INTERFACE),
// in UTF-16.
func (r *reader) startedBySystemdBoot() bool {
	info := r.text(efivars + "LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f")
	return strings.Contains(strings.ReplaceAll(info, "\x00", ""), "systemd-boot")
}

func (r *reader) grub() Loader {
	l := Loader{Kind: GRUB, Defaults: r.first(kernelargs.GRUBDefaults)}
	l.Config = r.first(kernelargs.GRUBConfigs()...)
	generator := r.first("usr/sbin/grub-mkconfig", "usr/sbin/grub2-mkconfig", "usr/bin/grub2-mkconfig", "usr/bin/grub-mkconfig")
	if l.Defaults == "" || l.Config == "" && generator == "" {
		return Loader{}
	}
	// The script shows whether it reads fragments: Debian's does, GRUB's own does not.
	if generator != "" && strings.Contains(r.text(generator), "default/grub.d") {
		l.DropIns = kernelargs.GRUBDropIns
	}
	switch {
	case r.any(transactionalUpdate): // the root is read-only, and the tool generates the configuration in a new snapshot
		l.Tool, l.Arguments = transactionalUpdate, []string{"--non-interactive", "grub.cfg"}
	case r.any("usr/sbin/update-grub"):
		l.Tool = "usr/sbin/update-grub"
	case generator != "":
		l.Tool, l.Arguments = generator, []string{"-o", "/" + cmp.Or(l.Config, kernelargs.GRUB2Config)}
	}
	// GRUB's module blscfg reads the entries at each boot, so no tool has to run.
	if entries := r.entryFiles("boot"); len(entries) > 0 && blsEnabled(r.text(l.Defaults)) {
		l.Kind, l.EntryFiles, l.Tool, l.Arguments, l.Config = GRUBEntries, entries, "", nil, ""
		l.Cmdline = r.kernelInstall()
	}
	return l
}

const (
	// kernelOptionsWord stands for the arguments in entries of RHEL 8.
	kernelOptionsWord = "$kernelopts"
	// grubEnvironment is the first line of an environment block (grub-core/lib/envblk.c).
	grubEnvironment = "# GRUB Environment Block\n"
)

// kernelOptions returns GRUB with entries, and true if bootstrap can edit kernelopts in the file of its environment block. It
// can't if the block sets env_block, because the variables are then in the file system's header, or if the block has no
// kernelopts: GRUB's configuration has a default, which setting the variable would hide. On UEFI, RHEL 8 links the block to the
// EFI system partition.
func (r *reader) kernelOptions() (Loader, bool) {
	l := r.grub()
	l.Kind, l.Environment = KernelOptions, r.follow(kernelargs.GRUB2Environment)
	text := r.text(l.Environment)
	sets := func(variable string) bool { return strings.Contains(text, "\n"+variable+"=") }
	return l, len(l.EntryFiles) > 0 && strings.HasPrefix(text, grubEnvironment) && sets("kernelopts") && !sets("env_block")
}

// follow returns the target of a path below the root.
func (r *reader) follow(name string) string { return facts.FollowIn(r.tree, name) }

// transactionalUpdate changes systems with a read-only root, such as openSUSE MicroOS.
const transactionalUpdate = "usr/sbin/transactional-update"

// proxmox returns the loader of Proxmox VE. Its tool takes the arguments for systemd-boot from etc/kernel/cmdline, and those
// for GRUB from etc/default/grub. A running node shows which of the two started it. An image does not: etc/kernel/cmdline then
// counts if it exists.
func (r *reader) proxmox(live bool) Loader {
	l := Loader{Kind: Proxmox, Tool: r.first("usr/sbin/proxmox-boot-tool"), Arguments: []string{"refresh"}, Cmdline: r.first(kernelargs.KernelInstall)}
	byGRUB := l.Cmdline == "" || live && !r.startedBySystemdBoot()
	if grub := r.grub(); byGRUB && grub.Kind != "" {
		l.Defaults, l.DropIns, l.Cmdline = grub.Defaults, grub.DropIns, ""
	}
	return l
}

// blsEnabled reports whether etc/default/grub makes GRUB read entries.
func blsEnabled(defaults string) bool {
	enabled := false
	for line := range strings.Lines(defaults) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "GRUB_ENABLE_BLSCFG="); ok {
			enabled = strings.Trim(value, `"'`) == "true"
		}
	}
	return enabled
}

func (r *reader) entriesOrImages() Loader {
	for _, partition := range kernelargs.Partitions() {
		if entries := r.entryFiles(partition); len(entries) > 0 {
			return r.withGenerator(Loader{Kind: Entries, EntryFiles: entries, Cmdline: r.kernelInstall()})
		}
	}
	for _, partition := range kernelargs.Partitions() {
		// The partition is FAT, whose names are case-insensitive.
		image := func(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".efi") }
		if slices.ContainsFunc(r.list(path.Join(partition, "EFI/Linux")), image) {
			return Loader{Kind: UnifiedImages, Cmdline: r.kernelInstall()}
		}
	}
	return Loader{}
}

// withGenerator adds the tool that writes the entries. sdbootutil writes all of them again from etc/kernel/cmdline; without
// the file it takes the arguments of the running kernel (github.com/openSUSE/sdbootutil). Garden Linux makes the file from
// fragments at each installation of a kernel (its features/_boot, update-kernel-cmdline).
func (r *reader) withGenerator(l Loader) Loader {
	switch {
	case l.Cmdline != "" && r.any("usr/bin/sdbootutil"):
		return Loader{Kind: SDBootUtil, Cmdline: l.Cmdline, Tool: "usr/bin/sdbootutil", Arguments: []string{"update-all-entries"}}
	case r.system().ID == "gardenlinux" && len(r.list(kernelargs.KernelFragments)) > 0:
		l.DropIns = kernelargs.KernelFragments
	}
	return l
}

func (r *reader) entryFiles(partition string) []string {
	var files []string
	dir := path.Join(partition, kernelargs.Entries)
	for _, name := range r.list(dir) {
		if strings.HasSuffix(name, ".conf") {
			files = append(files, path.Join(dir, name))
		}
	}
	return files
}

func (r *reader) kernelInstall() string {
	return r.first(kernelargs.KernelInstall, kernelargs.VendorKernelInstall)
}

func (r *reader) uBootMenu() Loader {
	tool := r.first("usr/sbin/u-boot-update")
	if tool == "" {
		return Loader{}
	}
	l := Loader{Kind: UBootMenu, Tool: tool, Config: kernelargs.ExtlinuxConfig, Defaults: kernelargs.UBootDefaults}
	if strings.Contains(r.text(tool), "/"+kernelargs.UBootDropIns) { // since u-boot-menu 4.2
		l.DropIns = kernelargs.UBootDropIns
	}
	return l
}

// updateExtlinux returns Alpine's loader if its tool replaces the configuration, which it does only with overwrite=1.
func (r *reader) updateExtlinux() Loader {
	l := Loader{Kind: UpdateExtlinux, Defaults: r.first(kernelargs.UpdateExtlinux), Tool: r.first("sbin/update-extlinux", "usr/sbin/update-extlinux"), Config: kernelargs.SyslinuxConfig}
	settings := kernelargs.NewSettings(nil)
	settings.Source(l.Defaults, r.text(l.Defaults))
	if l.Defaults == "" || l.Tool == "" || settings.Text("overwrite") != "1" {
		return Loader{}
	}
	return l
}

func (r *reader) extlinux() Loader {
	file := r.first(kernelargs.ExtlinuxConfig, kernelargs.SyslinuxConfig)
	if file == "" {
		return Loader{}
	}
	return Loader{Kind: Extlinux, Config: file}
}

func (r *reader) armbian() Loader {
	file := r.first(kernelargs.ArmbianConfig)
	if file == "" {
		return Loader{}
	}
	return Loader{Kind: Armbian, Config: file}
}

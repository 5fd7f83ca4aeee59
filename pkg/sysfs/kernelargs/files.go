package kernelargs

import "path"

// Running has the running kernel's command line.
const Running = "proc/cmdline"

// Files and directories of boot loaders, and of tools that write for them, below the node's root.
const (
	GRUBDefaults = "etc/default/grub"
	GRUBDropIns  = "etc/default/grub.d"
	// GRUBConfig and GRUB2Config are what GRUB's tool generates, and GRUB2Environment the environment block of the latter.
	GRUBConfig       = "boot/grub/grub.cfg"
	GRUB2Config      = "boot/grub2/grub.cfg"
	GRUB2Environment = "boot/grub2/grubenv"
	grubEnvironment  = "boot/grub/grubenv"

	// Entries are the directory of entries of the Boot Loader Specification, on each of the partitions.
	Entries = "loader/entries"
	// KernelInstall has the command line of kernels that are installed later, VendorKernelInstall a package's default of it
	// (kernel-install(8)), and KernelFragments what Garden Linux makes the former from.
	KernelInstall       = "etc/kernel/cmdline"
	VendorKernelInstall = "usr/lib/kernel/cmdline"
	KernelFragments     = "etc/kernel/cmdline.d"
	dracutFragments     = "etc/cmdline.d"

	UBootDefaults  = "etc/default/u-boot"
	UBootDropIns   = "etc/u-boot-menu/conf.d"
	ExtlinuxConfig = "boot/extlinux/extlinux.conf"
	// SyslinuxConfig is what update-extlinux generates, by UpdateExtlinux.
	SyslinuxConfig = "boot/extlinux.conf"
	UpdateExtlinux = "etc/update-extlinux.conf"
	ArmbianConfig  = "boot/armbianEnv.txt"
	firmwareConfig = "boot/firmware/cmdline.txt" // Raspberry Pi's

	// OEM has Flatcar's settings, and VendorOEM those of its image.
	OEM       = "oem/grub.cfg"
	VendorOEM = "usr/share/oem/grub.cfg"
	// OEMEnvironment is the environment block of Elemental, and BootArguments the arguments of its image.
	OEMEnvironment   = "oem/grubenv"
	kairosVariables  = "oem/grub_oem_env"
	BootArguments    = "etc/cos/bootargs.cfg"
	Tuned            = "etc/tuned/bootcmdline"
	LimineDefaults   = "etc/default/limine"
	LimineConfig     = "boot/limine.conf"
	REFIndConfig     = "boot/refind_linux.conf"
	efiVendors       = "boot/efi/EFI"
	environmentBlock = "grubenv"
)

// Partitions are where the partition of boot loader entries is mounted.
func Partitions() []string { return []string{"boot", "efi", "boot/efi"} }

// GRUBConfigs are GRUB's configurations.
func GRUBConfigs() []string { return []string{GRUBConfig, GRUB2Config} }

// Patterns are the files of which a command line or modprobe's configuration may be read, by path.Match: what a copy of a
// node has of them.
func Patterns() []string {
	all := []string{
		Running, GRUBDefaults, GRUBDropIns + "/*", UBootDefaults, UBootDropIns + "/*",
		KernelInstall, KernelFragments + "/*", VendorKernelInstall, dracutFragments + "/*",
		grubEnvironment, GRUB2Environment, path.Join(efiVendors, "*", environmentBlock),
		ExtlinuxConfig, SyslinuxConfig, UpdateExtlinux, LimineConfig, LimineDefaults, ArmbianConfig, REFIndConfig, firmwareConfig,
		OEM, VendorOEM, OEMEnvironment, kairosVariables, BootArguments, Tuned, InitramfsModules,
	}
	all = append(all, GRUBConfigs()...)
	for _, partition := range Partitions() {
		all = append(all, path.Join(partition, Entries, "*"))
	}
	for _, dir := range ModprobeDirs() {
		all = append(all, dir+"/*")
	}
	return all
}

package rule

// Codes of files that bootstrap reads and writes. Package bootstrap judges them, and those of the next groups.
const (
	// FileUnreadable: bootstrap can't read a file that decides about the node.
	FileUnreadable Code = "FileUnreadable"
	// FileDamaged: a file can't be parsed or edited safely.
	FileDamaged Code = "FileDamaged"
	// FileWrongType: a file is a link, or something else than a regular file.
	FileWrongType Code = "FileWrongType"
	// FileNotWritable: bootstrap can't write a file, or does not write to its directory.
	FileNotWritable Code = "FileNotWritable"
	// DOSLineEnds: a file that bootstrap edits has DOS line ends.
	DOSLineEnds Code = "DOSLineEnds"
	// GeneratedFile: a program writes the file at each start, so that an edit is lost.
	GeneratedFile Code = "GeneratedFile"
	// SettingOverridden: a file that is read later replaces a setting of bootstrap's.
	SettingOverridden Code = "SettingOverridden"
	// ReadOnlySystem: the system keeps no file that bootstrap writes.
	ReadOnlySystem Code = "ReadOnlySystem"
)

// Codes against a node's boot loader, kernel and firmware.
const (
	// BootLoaderUnknown: bootstrap does not know which boot loader starts the node.
	BootLoaderUnknown Code = "BootLoaderUnknown"
	// BootLoaderManaged: a tool of the system sets the kernel's arguments.
	BootLoaderManaged Code = "BootLoaderManaged"
	// BootLoaderToolMissing: the tool that generates the boot loader's configuration is not installed.
	BootLoaderToolMissing Code = "BootLoaderToolMissing"
	// BootLoaderConfigMissing: the boot loader's configuration is missing, such as on a partition that is not mounted.
	BootLoaderConfigMissing Code = "BootLoaderConfigMissing"
	// UnifiedKernelImage: the kernel's arguments are part of a signed image.
	UnifiedKernelImage Code = "UnifiedKernelImage"
	// KernelArgumentConflict: an argument of the kernel contradicts the blueprint.
	KernelArgumentConflict Code = "KernelArgumentConflict"
	// RebootWithoutEffect: a boot did not put bootstrap's configuration into effect.
	RebootWithoutEffect Code = "RebootWithoutEffect"
	// ModuleOptionConflict: a file sets other options of a VFIO module, or prevents it from loading.
	ModuleOptionConflict Code = "ModuleOptionConflict"
	// KernelModuleMissing: the kernel has no module that VFIO or Kata needs.
	KernelModuleMissing Code = "KernelModuleMissing"
	// NoIOMMU: the node has no IOMMU, or the firmware does not describe it.
	NoIOMMU Code = "NoIOMMU"
	// IOMMUNotUsed: the firmware describes an IOMMU that the kernel does not use.
	IOMMUNotUsed Code = "IOMMUNotUsed"
	// XenOwnsIOMMU: Xen starts the node, or may start it, and keeps the IOMMU.
	XenOwnsIOMMU Code = "XenOwnsIOMMU"
	// NoVirtualization: the CPU's virtualization is missing or disabled.
	NoVirtualization Code = "NoVirtualization"
	// NoSystemd: the node has no systemd.
	NoSystemd Code = "NoSystemd"
	// HugePagesUnsupported: the node has no huge pages of a size, or no such NUMA node.
	HugePagesUnsupported Code = "HugePagesUnsupported"
	// NUMANodeUnknown: the NUMA node of a function is unknown.
	NUMANodeUnknown Code = "NUMANodeUnknown"
	// NoFabricManager: the blueprint asks for partitions, and Fabric Manager is not installed.
	NoFabricManager Code = "NoFabricManager"
	// FabricProgramMissing: the blueprint has partitions activated at boot, and the program that does it is missing.
	FabricProgramMissing Code = "FabricProgramMissing"
	// PartitionsActivatedTwice: the blueprint and the node config both have partitions activated.
	PartitionsActivatedTwice Code = "PartitionsActivatedTwice"
	// SlowStart: the kernel or QEMU lacks a change without which VMs with devices start slowly.
	SlowStart Code = "SlowStart"
	// FileMappingMissing: iommufd of this kernel can't map the memory of VMs for the installed QEMU.
	FileMappingMissing Code = "FileMappingMissing"
	// StartupCommandConflict: a command at the node's start undoes a setting on which the plugin relies.
	StartupCommandConflict Code = "StartupCommandConflict"
)

// Codes against functions and VFs of a blueprint.
const (
	// BehindVMD: the function is behind Intel VMD.
	BehindVMD Code = "BehindVMD"
	// UseUnknown: it can't be verified whether the node uses a function.
	UseUnknown Code = "UseUnknown"
	// DrivesConsole: the function drives the boot console.
	DrivesConsole Code = "DrivesConsole"
	// StillBound: a function of the blueprint is still on its host driver.
	StillBound Code = "StillBound"
	// ResetMethodMissing: the kernel does not offer a reset method of the blueprint for a function.
	ResetMethodMissing Code = "ResetMethodMissing"
	// EarlyBindingUnsupported: the tool of the initial RAM file system does not support early binding.
	EarlyBindingUnsupported Code = "EarlyBindingUnsupported"
	// EarlyBindingPolicy: the node config does not keep a function on VFIO.
	EarlyBindingPolicy Code = "EarlyBindingPolicy"
	// TooFewVFs: the PF does not support the number of VFs.
	TooFewVFs Code = "TooFewVFs"
	// VFCountConflict: another program sets the number of VFs too.
	VFCountConflict Code = "VFCountConflict"
)

// Codes against a node's container runtimes, Kata and kubelet.
const (
	// NoContainerRuntime: the node has no container runtime that bootstrap knows.
	NoContainerRuntime Code = "NoContainerRuntime"
	// VersionTooOld: a program is older than kata-vfio needs.
	VersionTooOld Code = "VersionTooOld"
	// VersionUnknown: no file shows a version that must be known.
	VersionUnknown Code = "VersionUnknown"
	// VersionMismatch: a program has another version than the blueprint requires.
	VersionMismatch Code = "VersionMismatch"
	// ConfigVersionUnsupported: containerd's configuration has a version that can't be merged.
	ConfigVersionUnsupported Code = "ConfigVersionUnsupported"
	// PluginDisabled: containerd's configuration disables a plugin that pods need.
	PluginDisabled Code = "PluginDisabled"
	// ImportMissing: containerd's configuration does not import a file, and bootstrap can't add the import.
	ImportMissing Code = "ImportMissing"
	// NotStartedYet: the distribution that writes containerd's configuration has not started yet.
	NotStartedYet Code = "NotStartedYet"
	// TemplateImportsTwice: a template has imports, and its base will have them too.
	TemplateImportsTwice Code = "TemplateImportsTwice"
	// HandlerConflict: another file defines a runtime handler of the same name.
	HandlerConflict Code = "HandlerConflict"
	// CgroupDriverMismatch: kubelet and container runtime have different cgroup drivers.
	CgroupDriverMismatch Code = "CgroupDriverMismatch"
	// SnapshotterMissing: the handler has no snapshotter that makes block devices.
	SnapshotterMissing Code = "SnapshotterMissing"
	// AnnotationsPassed: the container runtime passes all annotations of a pod to Kata's Go runtime.
	AnnotationsPassed Code = "AnnotationsPassed"
	// KataNotInstalled: Kata's runtime is not installed.
	KataNotInstalled Code = "KataNotInstalled"
	// KataConfigMissing: Kata's installation lacks the configuration that bootstrap copies.
	KataConfigMissing Code = "KataConfigMissing"
	// HotPlugNotEnabled: devices are hot-plugged, but only the plugin's flag --hot-plug permits that.
	HotPlugNotEnabled Code = "HotPlugNotEnabled"
	// VirtiofsdMissing: Kata shares directories with guests, and its program for that is missing.
	VirtiofsdMissing Code = "VirtiofsdMissing"
	// BlockDevicesByPath: VMs share directories with the node and get block devices by path.
	BlockDevicesByPath Code = "BlockDevicesByPath"
	// ServiceUnknown: no known service starts the container runtime.
	ServiceUnknown Code = "ServiceUnknown"
	// FeatureGateDisabled: the kubelet has a feature gate off that the plugin needs.
	FeatureGateDisabled Code = "FeatureGateDisabled"
)

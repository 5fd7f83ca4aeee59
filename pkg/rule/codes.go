package rule

// Code names a verdict. Codes are stable for machines: they are values of taints, reasons of conditions and Events, and part of the
// ledger. A test checks that each code has a text in texts.yaml.
type Code string

// Codes against the isolation of a function. Package isolation judges it.
const (
	// NoIOMMUGroup: the function is in no IOMMU group, so nothing confines its DMA.
	NoIOMMUGroup Code = "NoIOMMUGroup"
	// NoIOMMUMode: the group is a no-IOMMU group made up by VFIO. It is a note if the mode is on and the function has a real group.
	NoIOMMUMode Code = "NoIOMMUMode"
	// GroupNotViable: a member of the group can't be taken (a bridge with a driver that does not leave DMA to its user, a busy
	// mate), so VFIO refuses the group.
	GroupNotViable Code = "GroupNotViable"
	// NoInterruptRemapping: a device could forge interrupts.
	NoInterruptRemapping Code = "NoInterruptRemapping"
	// UnsafeInterruptsAllowed: a module parameter switches the interrupt check off. It is a note if interrupts are remapped.
	UnsafeInterruptsAllowed Code = "UnsafeInterruptsAllowed"
	// PeerToPeerPossible: a port on the path lets requests of the group reach a function outside it without passing the IOMMU.
	PeerToPeerPossible Code = "PeerToPeerPossible"
	// NoReset: no reset method has a reset set that lies inside the group.
	NoReset Code = "NoReset"
	// ConfigSpaceDead: configuration space reads all ones.
	ConfigSpaceDead Code = "ConfigSpaceDead"
	// DirectMappedRegion: the firmware demands direct mappings (RMRR, unity) for the group, so that a device keeps access to host
	// memory.
	DirectMappedRegion Code = "DirectMappedRegion"
	// Bridge: the function is a bridge; a VM gets the functions below it.
	Bridge Code = "Bridge"
)

// Codes of facts about a function's isolation that do not break it. Auditors want to know them.
const (
	// ATSEnabled: the device translates addresses itself, and its requests that are marked as translated pass the IOMMU
	// unchecked.
	ATSEnabled Code = "ATSEnabled"
	// IdentityDefaultDomain: while VFIO does not own the group, its DMA is untranslated.
	IdentityDefaultDomain Code = "IdentityDefaultDomain"
	// GroupMates: other functions are assigned together with this one.
	GroupMates Code = "GroupMates"
	// ACSUnproven: the kernel counts a port or function as isolated though its registers don't say so (a quirk of the kernel's, or
	// a patched kernel).
	ACSUnproven Code = "ACSUnproven"
	// ACSUnreadable: configuration space could not be read far enough to see ACS.
	ACSUnreadable Code = "ACSUnreadable"
	// WeakReset: the reset need not clear device memory. The only reset is a power cycle of the function (D3hot to D0), or the
	// function is the VF of a vGPU.
	WeakReset Code = "WeakReset"
)

// Codes against giving a device to a claim. Package plan judges it. All components that publish or print devices use its judgment.
const (
	// AllocatedElsewhere: the device is allocated from a pool of another node.
	AllocatedElsewhere Code = "AllocatedElsewhere"
	// OtherPool: the device is allocated from another pool than the node publishes it in.
	OtherPool Code = "OtherPool"
	// Absent: the node has no function at the address.
	Absent Code = "Absent"
	// WrongType: the function exists, but its type is not that of the device's name.
	WrongType Code = "WrongType"
	// NotOurs: the node's config leaves the function alone.
	NotOurs Code = "NotOurs"
	// GPUNotSliced: the function is a VF of a GPU, and the node's config does not permit slices of that GPU.
	GPUNotSliced Code = "GPUNotSliced"
	// Forbidden: the node itself needs the function.
	Forbidden Code = "Forbidden"
	// PFStaysOnHost: the function is a PF that must stay on its host driver, as its vendor requires.
	PFStaysOnHost Code = "PFStaysOnHost"
	// Held: another claim has the function or one that must go with it.
	Held Code = "Held"
	// HeldByLostClaim: a claim still has the function on the node, but no longer exists at the API server, so the scheduler counts the
	// function as free. Only a device gets this code; a claim is refused with [Held].
	HeldByLostClaim Code = "HeldByLostClaim"
	// Drained: the function, or another one of its assignment set, is drained. As a taint's value: no claim has it.
	Drained Code = "Drained"
	// Quarantined: the function could not be proven clean.
	Quarantined Code = "Quarantined"
	// NotIsolated: the isolation verdict is negative.
	NotIsolated Code = "NotIsolated"
	// FailsAudit: a check of the plugin's fails for the function or its node.
	FailsAudit Code = "FailsAudit"
	// PFBusy: the function is a PF with VFs, or a VF whose PF may be a tenant's.
	PFBusy Code = "PFBusy"
	// BackendUnavailable: the kernel does not have the VFIO interface that the config requires.
	BackendUnavailable Code = "BackendUnavailable"
	// OnVFIODenylist: vfio-pci refuses the function because of known errata.
	OnVFIODenylist Code = "OnVFIODenylist"
	// DriverServesVFIO: the function's host driver serves VFIO itself, and the function must stay on it.
	DriverServesVFIO Code = "DriverServesVFIO"
	// BARsUnassigned: BARs of the function, which the VM gets, have no address.
	BARsUnassigned Code = "BARsUnassigned"
	// BARReserved: the kernel keeps a BAR of the function, which the VM gets, for the firmware's frame buffer.
	BARReserved Code = "BARReserved"
	// SeveralOfIOMMUGroup: the VM would get several functions of one IOMMU group, which Kata can't plug.
	SeveralOfIOMMUGroup Code = "SeveralOfIOMMUGroup"
	// OtherOfIOMMUGroup: Kata would plug another function of the IOMMU group.
	OtherOfIOMMUGroup Code = "OtherOfIOMMUGroup"
	// HotPlugWindowTooSmall: a VM that gets the function while it runs has no room for its BARs.
	HotPlugWindowTooSmall Code = "HotPlugWindowTooSmall"
	// AdminAccess: the claim asks for administrative access.
	AdminAccess Code = "AdminAccess"
	// UnsupportedSetting: the config asks for a setting that can't be applied.
	UnsupportedSetting Code = "UnsupportedSetting"
	// FabricNotReady: the function is a GPU of an NVLink fabric whose partitions are not known, or whose Fabric Manager can't be asked.
	FabricNotReady Code = "FabricNotReady"
	// PartitionNotActivated: the partition of an NVLink fabric can't be activated, which only Prepare sees. As a taint's value: the
	// latest claim failed for this reason.
	PartitionNotActivated Code = "PartitionNotActivated"
	// NoAddressPool: the node has no such pool of addresses, or lacks the CNI plugin of the pool.
	NoAddressPool Code = "NoAddressPool"
	// DamagedRecord: the function is on a VFIO driver while a damaged record may own it.
	DamagedRecord Code = "DamagedRecord"
	// GroupMateNotSelected: the function would include one that the node's config does not name.
	GroupMateNotSelected Code = "GroupMateNotSelected"
	// LinkLost: the PCIe link of the function is down.
	LinkLost Code = "LinkLost"
	// FatalErrors: the function reported fatal errors.
	FatalErrors Code = "FatalErrors"
	// DiskInUse: a disk of the function is opened exclusively, which only Prepare and bootstrap see.
	DiskInUse Code = "DiskInUse"
	// InUse: a process has the function open, which only Prepare sees.
	InUse Code = "InUse"
	// Locked: an earlier operation on the function hangs in the kernel.
	Locked Code = "Locked"
	// NodeNotReady: the node refuses all new claims, for a reason of its own. [Verdict.Obstacle] is the reason.
	NodeNotReady Code = "NodeNotReady"
)

// Codes of the reasons why a node refuses all new claims.
const (
	// DiskFull: the disk of the journal or the ledger has no room for another claim.
	DiskFull Code = "DiskFull"
	// NoEvidence: the ledger can't be written.
	NoEvidence Code = "NoEvidence"
	// StateNotWritable: the journal can't be written.
	StateNotWritable Code = "StateNotWritable"
	// CDINotWritable: the directory of CDI specs can't be written.
	CDINotWritable Code = "CDINotWritable"
	// PodResourcesNotServed: no server answers Kata, so a VM would not get its devices.
	PodResourcesNotServed Code = "PodResourcesNotServed"
)

// Codes against the pod of a claim. The gate of Prepare judges it, before its VM starts.
const (
	// NoPod: the claim is not reserved for a pod.
	NoPod Code = "NoPod"
	// SharedClaim: the claim is reserved for more than one pod.
	SharedClaim Code = "SharedClaim"
	// ReservedForPodGroup: the claim is reserved for a PodGroup, not for a pod.
	ReservedForPodGroup Code = "ReservedForPodGroup"
	// PodReplaced: the pod does not exist, or another one has its name.
	PodReplaced Code = "PodReplaced"
	// OtherNode: the pod is not bound to this node.
	OtherNode Code = "OtherNode"
	// NoRuntimeClass: the pod would run under the node's default runtime.
	NoRuntimeClass Code = "NoRuntimeClass"
	// HandlerNotAllowed: the pod's RuntimeClass, or the sandbox, has a handler that does not start a VM for our devices.
	HandlerNotAllowed Code = "HandlerNotAllowed"
	// AnnotationNotAllowed: an annotation of the pod can name devices or change its VM.
	AnnotationNotAllowed Code = "AnnotationNotAllowed"
	// MountNotAllowed: a mount shows the host's VFIO nodes, or is the mount of a device node into a VM.
	MountNotAllowed Code = "MountNotAllowed"
	// ClassUnknown: the allocation names a request that the claim's spec does not have.
	ClassUnknown Code = "ClassUnknown"
	// ClassGone: the DeviceClass of a device was deleted.
	ClassGone Code = "ClassGone"
	// ClassNotGranted: the DeviceClass is not for the claim's namespace.
	ClassNotGranted Code = "ClassNotGranted"
	// ClassChanged: the DeviceClass has other parameters than the allocation.
	ClassChanged Code = "ClassChanged"
	// NoVLAN: a VF would be in no VLAN, and its DeviceClass does not allow that.
	NoVLAN Code = "NoVLAN"
	// InvalidConfig: the parameters of a claim or its DeviceClass can't be read.
	InvalidConfig Code = "InvalidConfig"
	// WeakensIsolation: the claim asks for parameters that only a DeviceClass may set.
	WeakensIsolation Code = "WeakensIsolation"
	// TwinNotReserved: kata-vfio-controller has not reserved the shared device for the claim.
	TwinNotReserved Code = "TwinNotReserved"
	// TwinInUse: the other driver's device for the same GPU is allocated to a claim, or a pod has it.
	TwinInUse Code = "TwinInUse"
)

// Codes against objects that only the chart's admission policies judge. They refuse with the codes above, too.
const (
	// TooManyDevices: a request has a count that no claim can get.
	TooManyDevices Code = "TooManyDevices"
	// TooManyConstraints: a claim has more constraints than the policies allow, to protect the scheduler.
	TooManyConstraints Code = "TooManyConstraints"
	// SchedulerNotAllowed: a pod with devices names another scheduler than all others do.
	SchedulerNotAllowed Code = "SchedulerNotAllowed"
	// AllDevicesNotAllowed: a request asks for all devices of a DeviceClass that does not allow that.
	AllDevicesNotAllowed Code = "AllDevicesNotAllowed"
	// FinalizerNotRemovable: a user other than the control plane removes the finalizer of a claim in use.
	FinalizerNotRemovable Code = "FinalizerNotRemovable"
	// VolumeNotAllowed: a volume of a tenant's pod names a server or a disk.
	VolumeNotAllowed Code = "VolumeNotAllowed"
	// HostAccessNotAllowed: a tenant's pod asks for namespaces of the host, privileges or capabilities.
	HostAccessNotAllowed Code = "HostAccessNotAllowed"
	// AffinityNotAllowed: a required anti-affinity of a tenant's pod reaches pods of other namespaces.
	AffinityNotAllowed Code = "AffinityNotAllowed"
	// TolerationNotAllowed: a request for a class of ours tolerates all taints.
	TolerationNotAllowed Code = "TolerationNotAllowed"
	// GracePeriodTooLong: a tenant's pod with devices could keep them for too long after its deletion.
	GracePeriodTooLong Code = "GracePeriodTooLong"
	// WriteOutOfScope: a request with the plugin's identity writes something that the plugin itself never writes.
	WriteOutOfScope Code = "WriteOutOfScope"
)

// Codes of what an operator wrote, which refuse no claim by themselves.
const (
	// ConfigDoesNotFit: a rule of the node config selects nothing, or something that the plugin can't take. Package nodeconfig judges
	// it. [Verdict.Object] is the label of the rule.
	ConfigDoesNotFit Code = "ConfigDoesNotFit"
)

// Codes of faults of a claim that was not refused.
const (
	// NoAddress: the CNI plugin gave a VF no address.
	NoAddress Code = "NoAddress"
	// AddressNotReturned: the CNI plugin did not take an address back.
	AddressNotReturned Code = "AddressNotReturned"
	// NotPrepared: the claim could not be prepared for another reason, which is in the message.
	NotPrepared Code = "NotPrepared"
)

// Codes against a sandbox or a container. The NRI plugin judges them, and the runtime puts its text into an Event of the pod.
const (
	// ClaimNotUsable: the claim is not prepared, or was prepared before a reboot.
	ClaimNotUsable Code = "ClaimNotUsable"
	// DeviceNotClean: another sandbox has the devices, or had them and they have not been reset.
	DeviceNotClean Code = "DeviceNotClean"
	// NotInSandbox: the VM booted without the device and can't get it later.
	NotInSandbox Code = "NotInSandbox"
	// NodeWithoutClaim: a VFIO device that belongs to no prepared claim.
	NodeWithoutClaim Code = "NodeWithoutClaim"
	// NodeOfOthersClaim: a VFIO device of a claim that the pod does not have.
	NodeOfOthersClaim Code = "NodeOfOthersClaim"
	// NodeMismatch: a device node with the name of one device and the number of another.
	NodeMismatch Code = "NodeMismatch"
	// Unverifiable: the facts for the decision can't be read.
	Unverifiable Code = "Unverifiable"
)

// Codes of the state of a claim's device.
const (
	// Prepared: the claim's devices are bound to their VFIO driver, and its CDI spec is written.
	Prepared Code = "Prepared"
	// Unprepared: the claim's devices are released.
	Unprepared Code = "Unprepared"
	// Isolated: no bypass of the IOMMU lets another tenant reach the device.
	Isolated Code = "Isolated"
	// NotJudged: the node has no verdict on the device yet.
	NotJudged Code = "NotJudged"
	// Waived: the DeviceClass does not require it.
	Waived Code = "Waived"
	// MemoryNotChecked: resets are proven by registers. Whether one clears the device's memory is not checked.
	MemoryNotChecked Code = "MemoryNotChecked"
	// Orphan: the node has state of a claim that no longer exists.
	Orphan Code = "Orphan"
)

// Codes of a VF's link.
const (
	// PFDown: the PF's interface is down.
	PFDown Code = "PFDown"
	// PFNoCarrier: the PF's interface is up and has no carrier.
	PFNoCarrier Code = "PFNoCarrier"
	// PFHasCarrier: the VF's link follows its PF's, which is up.
	PFHasCarrier Code = "PFHasCarrier"
	// LinkEnabled: the VF's linkState is Enable, so that its link does not follow its PF's.
	LinkEnabled Code = "LinkEnabled"
	// LinkDisabled: the VF's linkState is Disable.
	LinkDisabled Code = "LinkDisabled"
	// PFUnreadable: the PF's interface could not be read.
	PFUnreadable Code = "PFUnreadable"
)

// Codes of a device that an operator drains, of one that only its allocation keeps published, and of a node's claims.
const (
	// Draining: a claim still has the device, or the device is not on its host driver yet. See [Drained].
	Draining Code = "Draining"
	// Undrained: the drain ended.
	Undrained Code = "Undrained"
	// Gone: the function no longer exists.
	Gone Code = "Gone"
	// Moved: the device will be published in another pool or as a pair.
	Moved Code = "Moved"
	// Renamed: the device will be published under another name or in a pool with another name: an earlier version named it
	// or its pool (device.Function.HasName, device.IsFormerPool).
	Renamed Code = "Renamed"
	// ClaimsRefused: the node refuses all new claims from now on.
	ClaimsRefused Code = "ClaimsRefused"
	// ClaimsAccepted: the node accepts new claims again.
	ClaimsAccepted Code = "ClaimsAccepted"
)

// Codes of the sanitizing stage between two tenants.
const (
	// DomainOfOtherTenant: the function is in an exclusive domain in which another tenant has a device.
	DomainOfOtherTenant Code = "DomainOfOtherTenant"
	// DomainTaken: another tenant was first in the exclusive domains of a claim whose pod waited for them.
	DomainTaken Code = "DomainTaken"
	// DomainFree: no other tenant has a device in the exclusive domains of a claim whose pod waited for them.
	DomainFree Code = "DomainFree"
	// TenantUnknown: kata-vfio-controller has not given the claim's namespace the ID of a tenant, and the node has exclusive domains.
	TenantUnknown Code = "TenantUnknown"
	// NotSanitized: the function waits for its sanitizing stage, or is in it.
	NotSanitized Code = "NotSanitized"
	// SanitizeFailed: the stage could not prove the function clean.
	SanitizeFailed Code = "SanitizeFailed"
	// FirmwareChanged: the stage measured other firmware than before.
	FirmwareChanged Code = "FirmwareChanged"
	// SanitizerUnknown: the function's rule in the node config names a profile that the node does not have.
	SanitizerUnknown Code = "SanitizerUnknown"
	// NothingToSanitize: a stage's claim has a function that does not wait for a stage.
	NothingToSanitize Code = "NothingToSanitize"
	// NotAStage: a claim of another namespace names the stage's DeviceClass.
	NotAStage Code = "NotAStage"
	// Sanitized: the stage proved the function clean.
	Sanitized Code = "Sanitized"
)

// Codes of a GPU that another DRA driver publishes too.
const (
	// TwinFree: no claim has a twin, and none can get one.
	TwinFree Code = "TwinFree"
	// TwinAllocated: a claim has a twin.
	TwinAllocated Code = "TwinAllocated"
	// TwinAllocatedTwice: claims of both drivers have the GPU, although it was reserved for one.
	TwinAllocatedTwice Code = "TwinAllocatedTwice"
	// TwinNotPublished: the other driver doesn't publish the GPU.
	TwinNotPublished Code = "TwinNotPublished"
)

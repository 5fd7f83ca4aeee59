// Package isolation judges whether a function can be assigned to one tenant without giving it access to another.
// It judges from facts alone, and all packages use the same verdict: prepare enforces it, publish turns it into
// attributes and taints, the audit prints it with its evidence.
package isolation

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Code names a reason. Codes are stable for machines.
type Code string

// Reasons why a function is not isolated.
const (
	// NoGroup: the function is in no IOMMU group, so nothing confines its DMA.
	NoGroup Code = "NoIOMMUGroup"
	// NoIOMMU: the group is a no-IOMMU group made up by VFIO.
	NoIOMMU Code = "NoIOMMUMode"
	// NotViable: a member of the group can't be taken (a bridge with a driver
	// that does not leave DMA to its user, a busy mate), so VFIO refuses the group.
	NotViable Code = "GroupNotViable"
	// NoInterruptRemapping: a device could forge interrupts.
	NoInterruptRemapping Code = "NoInterruptRemapping"
	// UnsafeInterrupts: a module parameter switches the interrupt check off.
	UnsafeInterrupts Code = "UnsafeInterruptsAllowed"
	// PeerToPeer: a port on the path lets requests of the group reach a
	// function outside it without passing the IOMMU.
	PeerToPeer Code = "PeerToPeerPossible"
	// NoReset: no reset method has a reset set that lies inside the group.
	NoReset Code = "NoReset"
	// Dead: configuration space reads all ones.
	Dead Code = "ConfigSpaceDead"
	// DirectRegion: the firmware demands direct mappings (RMRR, unity) for the
	// group, so that a device keeps access to host memory.
	DirectRegion Code = "DirectMappedRegion"
)

// Codes of reasons against functions that are never assigned.
const (
	// IsBridge: the function is a bridge; a VM gets the functions below it.
	IsBridge Code = "Bridge"
)

// Codes of notes. UnsafeInterrupts and NoIOMMU are notes where they are set but don't affect the function: its
// interrupts are remapped anyway, or it has a real group.
const (
	// ATSEnabled: the device translates addresses itself, and what it marks as
	// translated passes the IOMMU unchecked.
	ATSEnabled Code = "ATSEnabled"
	// IdentityDomain: while VFIO does not own the group, its DMA is untranslated.
	IdentityDomain Code = "IdentityDefaultDomain"
	// GroupMates: other functions go with this one.
	GroupMates Code = "GroupMates"
	// ACSUnproven: the kernel counts a port or function as isolated though its
	// registers don't say so (a quirk of the kernel's, or a patched kernel).
	ACSUnproven Code = "ACSUnproven"
	// ACSUnreadable: configuration space could not be read far enough to see ACS.
	ACSUnreadable Code = "ACSUnreadable"
	// WeakReset: the only reset is a power cycle of the function (D3hot to D0),
	// which need not clear device memory.
	WeakReset Code = "WeakReset"
)

// Severity orders reasons and notes as the audit does.
type Severity string

// Severities, worst first.
const (
	Critical Severity = "critical"
	High     Severity = "high"
	Medium   Severity = "medium"
	Low      Severity = "low"
	// Info is a fact that no configuration changes, or that is not a fault.
	Info Severity = "info"
)

// Reason is one way in which the function is not isolated (or, in
// [Verdict.Notes], one thing that an auditor wants to know).
type Reason struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Text says what is wrong and on which function, as one sentence without
	// its full stop.
	Text string `json:"text"`
	// Culprit is the function at fault where it is not the judged one.
	Culprit *pci.Address `json:"culprit,omitempty"`
	// Fix says what to do about it, in the same form.
	Fix      string     `json:"fix"`
	Evidence []Evidence `json:"evidence,omitempty"`
}

// Evidence is one fact that a verdict rests on.
type Evidence struct {
	// Path is the file that was read, relative to the node's root: "/sys/..."; a "*" matches all files of the pattern.
	Path string `json:"path"`
	// Value is the content of the file, as the kernel prints it.
	Value string `json:"value"`
}

// Verdict is the judgement on one function within its group.
type Verdict struct {
	// Isolated is true when there are no Reasons.
	Isolated bool `json:"isolated"`
	// Reasons are worst first; within a severity, in the order of the checks
	// and then of addresses.
	Reasons []Reason `json:"reasons,omitempty"`
	// Notes are facts that don't break isolation: ATS on, an identity default
	// domain, group mates that go with the function. Ordered as Reasons are.
	Notes []Reason `json:"notes,omitempty"`
	// Evidence are the checked facts that are in order.
	Evidence []Evidence `json:"evidence,omitempty"`
	// Reset is the way to reset the function, or nil if there is none.
	Reset *Reset `json:"reset,omitempty"`
}

// Has reports whether the verdict holds a reason with the code.
func (v *Verdict) Has(code Code) bool {
	for i := range v.Reasons {
		if v.Reasons[i].Code == code {
			return true
		}
	}
	return false
}

// Judge returns the verdict on f. It is deterministic and uses only the snapshot that f belongs to. It answers
// whether a tenant's VM that has f and all that goes with it (see [AssignmentSet]) is isolated from the rest of
// the node. Package plan decides whether f is free.
//
// What is unknown counts as not isolated.
func Judge(s *device.Snapshot, f *device.Function) Verdict {
	return judge(s, f)
}

// judgement gathers the verdict on one function.
type judgement struct {
	s *device.Snapshot
	f *device.Function
	// group is nil when f has none.
	group *device.Group
	v     Verdict
}

func judge(s *device.Snapshot, f *device.Function) Verdict {
	j := &judgement{s: s, f: f}
	j.group, _ = s.GroupOf(f)
	if f.IsBridge() {
		j.bridge()
		return j.verdict()
	}
	for _, check := range []func(*judgement){
		(*judgement).grouped, (*judgement).viable, (*judgement).interrupts,
		(*judgement).reserved, (*judgement).peers, (*judgement).translation,
		(*judgement).domain, (*judgement).alive, (*judgement).resettable,
	} {
		check(j)
	}
	return j.verdict()
}

// verdict returns the collected facts in a stable order.
func (j *judgement) verdict() Verdict {
	worstFirst := func(a, b Reason) int { return a.Severity.rank() - b.Severity.rank() }
	slices.SortStableFunc(j.v.Reasons, worstFirst)
	slices.SortStableFunc(j.v.Notes, worstFirst)
	j.v.Isolated = len(j.v.Reasons) == 0
	return j.v
}

func (j *judgement) reason(r Reason) { j.v.Reasons = append(j.v.Reasons, weighed(r)) }

func (j *judgement) note(r Reason) { j.v.Notes = append(j.v.Notes, weighed(r)) }

// saw records a fact and returns it, so that a reason can cite it.
func (j *judgement) saw(path, value string) []Evidence {
	e := Evidence{Path: path, Value: value}
	j.v.Evidence = append(j.v.Evidence, e)
	return []Evidence{e}
}

// bridge explains why the other checks are left out for a bridge.
func (j *judgement) bridge() {
	j.reason(Reason{
		Code:     IsBridge,
		Text:     fmt.Sprintf("%s is a bridge, and a bridge can't be assigned to a VM", j.f.Address),
		Fix:      "give the VM functions below it",
		Evidence: j.saw(attribute(j.f.Address, "class"), "0x"+j.f.Class.String()),
	})
}

// alive checks that the function answers.
func (j *judgement) alive() {
	if !j.f.ConfigDead {
		return
	}
	r := Reason{
		Code:     Dead,
		Text:     DeadText(j.f),
		Fix:      deadFix(attribute(j.f.Address, "remove")),
		Evidence: j.saw(attribute(j.f.Address, "config"), "ff ff ff ff"),
	}
	if j.f.D3cold {
		r.Fix = coldFix(j.f)
		r.Evidence = append(r.Evidence, j.saw(attribute(j.f.Address, "power_state"), "D3cold")...)
	}
	j.reason(r)
}

// DeadText says what is wrong with a function whose configuration space reads all ones.
func DeadText(f *device.Function) string {
	if f.D3cold {
		return fmt.Sprintf("%s is in D3cold and does not come back: configuration space reads all ones", f.Address)
	}
	return fmt.Sprintf("configuration space of %s reads all ones: the function does not answer", f.Address)
}

// coldFix is [deadFix] for a function that lost its power and did not come back. The kernel takes it away when the function is
// idle, as vfio-pci has a function that no VM has open, if it and the port above allow that
// (Documentation/ABI/testing/sysfs-bus-pci d3cold_allowed, drivers/pci/pci.c pci_dev_check_d3cold).
func coldFix(f *device.Function) string {
	files := attribute(f.Address, "d3cold_allowed")
	if n := len(f.Upstream); n > 0 {
		files += " " + attribute(f.Upstream[n-1], "d3cold_allowed")
	}
	return "boot with `vfio_pci.disable_idle_d3=1`, run `echo 0 | tee " + files + "` at each boot, and power-cycle the node"
}

// rank orders severities, worst first.
func (s Severity) rank() int {
	return slices.Index([]Severity{Critical, High, Medium, Low, Info}, s)
}

// Compare orders severities, worst first. It suits slices.SortFunc.
func (s Severity) Compare(other Severity) int { return s.rank() - other.rank() }

// attribute returns the path of a function's sysfs attribute.
func attribute(a pci.Address, name string) string {
	return "/sys/bus/pci/devices/" + a.String() + "/" + name
}

// groupFile returns the path of a file of an IOMMU group.
func groupFile(number int, name string) string {
	return fmt.Sprintf("/sys/kernel/iommu_groups/%d/%s", number, name)
}

// unbindFix returns the command that takes a function from its driver.
func unbindFix(f *device.Function) string {
	return fmt.Sprintf("unbind %s from %s: `echo %s > /sys/bus/pci/drivers/%s/unbind`", f.Address, f.Driver, f.Address, f.Driver)
}

// Fix returns what to do about a reason or note with the code, for whatever device: the
// text of the audit's rules. A verdict's own fix says the same, with addresses and values
// where they help.
func Fix(code Code) string {
	switch code {
	case NoGroup:
		return "switch on VT-d, AMD-Vi or the SMMU in the firmware setup, boot with `intel_iommu=on` on Intel, and remove any `iommu=off`. A VM needs a virtual IOMMU from its hypervisor. Xen keeps the IOMMU for itself: start the kernel without Xen"
	case NoIOMMU:
		return "remove enable_unsafe_noiommu_mode from /etc/modprobe.d and the kernel command line, enable the IOMMU, and reboot"
	case NoInterruptRemapping:
		return "switch on interrupt remapping with VT-d or AMD-Vi in the firmware setup, remove `intremap=off` from the kernel command line, and reboot"
	case UnsafeInterrupts:
		return UnsafeInterruptsFix("/sys/module/<module>/parameters/allow_unsafe_interrupts")
	case PeerToPeer:
		return "switch ACS of the port on: " + acsAtBootBy("<flags>@<port>") + ". Where the port has no ACS, " + otherSlotFix("the device")
	case NoReset:
		return noResetFix("reset_method")
	case WeakReset:
		return "use a device with FLR, or one that is alone below its port so that the bus can be reset"
	case Dead:
		return deadFix("/sys/bus/pci/devices/<address>/remove")
	case DirectRegion:
		return "switch off what shares memory with the device in the firmware setup (RMRR, \"shared memory features\", legacy USB), or ask the platform's vendor"
	case ATSEnabled:
		return "boot with `pci=noats`, or switch ATS off in the device's firmware, unless you trust its firmware against its tenant. " +
			"GPUs that are coherent with the CPU (Grace Hopper, Grace Blackwell, GB10) need ATS: accept it with a waiver"
	case IdentityDomain:
		return identityFix("/sys/kernel/iommu_groups/<group>/type")
	case ACSUnproven:
		return "make sure that `pcie_acs_override` is not on the kernel command line. Otherwise this is a quirk by the vendor's word (drivers/pci/quirks.c, pci_dev_acs_enabled), which a waiver can accept"
	case ACSUnreadable:
		return "run as root with CAP_SYS_ADMIN in the initial user namespace to read all of configuration space; Intel PCH ports with 32-bit ACS registers stay unreadable"
	default:
		return ""
	}
}

// otherSlotFix is for a device that no switch of ACS helps.
func otherSlotFix(device string) string {
	return "move " + device + " to a slot whose ports have ACS, or enable ACS (for VFs also ARI) in the firmware setup"
}

// UnsafeInterruptsFix is the fix of [UnsafeInterrupts] for a module's parameter.
func UnsafeInterruptsFix(parameter string) string {
	return "`echo N > " + parameter + "`, and remove allow_unsafe_interrupts from /etc/modprobe.d and the kernel command line"
}

func noResetFix(attribute string) string {
	return "`echo default > " + attribute + "` if reset_method was changed. Otherwise use a device with FLR, or one that is alone below its port"
}

func deadFix(remove string) string {
	return "check its power and seating, then `echo 1 > " + remove + "` and `echo 1 > /sys/bus/pci/rescan`, or power-cycle the node"
}

func identityFix(file string) string {
	return "boot without `iommu=pt`, or `echo DMA > " + file + "` while no member has a driver"
}

// acsAtBootBy says how the kernel gets to switch ACS on. It does so by itself for IOMMUs
// unless an argument says otherwise: disable_acs_redir switches redirection off, and
// config_acs sets each switch (Documentation/admin-guide/kernel-parameters.txt, since 6.11).
func acsAtBootBy(value string) string {
	return "take `pci=disable_acs_redir=` off the kernel command line if it names the port, or boot with `pci=config_acs=" +
		value + "` (Linux 6.11 or later)"
}

// Package isolation judges whether a function can be given to one tenant
// without reaching another: from facts alone, once, for everybody. Prepare
// enforces the verdict, publish turns it into attributes and taints, the audit
// prints it with its evidence.
package isolation

import (
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

// Codes of notes. UnsafeInterrupts and NoIOMMU are notes too where they are
// set but don't reach the function: interrupts are remapped all the same, or
// the function has a real group.
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
	// Info is a fact that no configuration changes, or that is nobody's fault.
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
	// Path is the file that was read, below the node's root: "/sys/..."; a "*"
	// stands for all files of the pattern.
	Path string `json:"path"`
	// Value is what it said, in the kernel's words.
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
	// Evidence is what was looked at and found in order.
	Evidence []Evidence `json:"evidence,omitempty"`
	// Reset is the way to reset the function; nil when there is none.
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

// Judge returns the verdict on f. It is deterministic and reads nothing but
// the snapshot that f belongs to. It answers whether a tenant's VM that has f
// and all that goes with it (see [AssignmentSet]) is kept apart from the rest of the
// node; whether f is free to be taken is for package plan to say.
//
// What can't be told is no proof: unknown counts as not isolated.
func Judge(s *device.Snapshot, f *device.Function) Verdict {
	return judge(s, f)
}

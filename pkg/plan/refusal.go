package plan

import (
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Code names the reason of a refusal. Codes are stable for machines.
type Code string

// Refusal codes.
const (
	// AllocatedElsewhere: the device is allocated from a pool of another node.
	AllocatedElsewhere Code = "AllocatedElsewhere"
	// OtherPool: the device is allocated from another pool than the node publishes it in.
	OtherPool Code = "OtherPool"
	// Absent: the node has no function at the address.
	Absent Code = "Absent"
	// WrongType: the function is there, but is not what the device name says.
	WrongType Code = "WrongType"
	// NotOurs: the node's config leaves the function alone.
	NotOurs Code = "NotOurs"
	// Forbidden: the node itself needs the function.
	Forbidden Code = "Forbidden"
	// Held: another claim has the function or one that must go with it.
	Held Code = "Held"
	// HeldByLostClaim: a claim still has the function on the node, and no longer at the API server, so that the scheduler takes it for
	// free. Only devices are judged by it ([Node.Attempted]); a claim is refused with [Held].
	HeldByLostClaim Code = "HeldByLostClaim"
	// Drained: the function, or another one of its assignment set, is drained.
	Drained Code = "Drained"
	// Quarantined: the function could not be proven clean.
	Quarantined Code = "Quarantined"
	// NotViable: VFIO would refuse the group as it is.
	NotViable Code = "GroupNotViable"
	// NotIsolated: the isolation verdict is negative.
	NotIsolated Code = "NotIsolated"
	// FailsAudit: a check of the plugin's fails for the function or its node.
	FailsAudit Code = "FailsAudit"
	// NoReset: the function can't be reset within its group.
	NoReset Code = "NoReset"
	// PFBusy: the function is a PF whose VFs are out, or a VF whose PF is with a tenant.
	PFBusy Code = "PFBusy"
	// NoBackend: the kernel does not have the VFIO interface that the config requires.
	NoBackend Code = "BackendUnavailable"
	// Denylisted: vfio-pci refuses the function because of known errata.
	Denylisted Code = "OnVFIODenylist"
	// ServesVFIO: the function's host driver serves VFIO itself, and the function must stay on it.
	ServesVFIO Code = "DriverServesVFIO"
	// BARsUnassigned: BARs of the function, which the VM gets, have no address.
	BARsUnassigned Code = "BARsUnassigned"
	// BARReserved: the kernel keeps a BAR of the function, which the VM gets, for the firmware's frame buffer.
	BARReserved Code = "BARReserved"
	// SeveralOfGroup: the VM would get several functions of one IOMMU group, which Kata can't plug.
	SeveralOfGroup Code = "SeveralOfIOMMUGroup"
	// OtherOfGroup: Kata would plug another function of the IOMMU group.
	OtherOfGroup Code = "OtherOfIOMMUGroup"
	// WindowTooSmall: a VM that gets the function while it runs has no room for its BARs.
	WindowTooSmall Code = "HotPlugWindowTooSmall"
	// AdminAccess: the claim asks for administrative access.
	AdminAccess Code = "AdminAccess"
	// Unsupported: the config asks for a setting that can't be applied.
	Unsupported Code = "UnsupportedSetting"
	// NoAddressPool: the node has no such pool of addresses, or not its plugin.
	NoAddressPool Code = "NoAddressPool"
	// Unexplained: the function is on a VFIO driver while a damaged record may own it.
	Unexplained Code = "DamagedRecord"
	// MateNotSelected: the function would take along one that the node's config does not name.
	MateNotSelected Code = "GroupMateNotSelected"
	// LinkLost: the PCIe link of the function is down.
	LinkLost Code = "LinkLost"
	// FatalErrors: the function reported fatal errors.
	FatalErrors Code = "FatalErrors"
	// DiskInUse: a disk of the function is opened exclusively, which only Prepare sees.
	DiskInUse Code = "DiskInUse"
	// InUse: a process has the function open, which only Prepare sees.
	InUse Code = "InUse"
	// Locked: an earlier operation on the function hangs in the kernel.
	Locked Code = "Locked"
	// Dead: configuration space reads all ones.
	Dead Code = "ConfigSpaceDead"
	// NodeNotReady: the node refuses all new claims, for a reason that no device has.
	NodeNotReady Code = "NodeNotReady"
)

// Obstacle says why a node refuses all new claims. The values are those of a taint and of Events, and stable.
type Obstacle string

// Obstacles.
const (
	// DiskFull: the disk of the journal or the ledger has no room for another claim.
	DiskFull Obstacle = "DiskFull"
	// NoEvidence: the ledger can't be written.
	NoEvidence Obstacle = "NoEvidence"
	// NoState: the journal can't be written.
	NoState Obstacle = "StateNotWritable"
	// NoSpecs: the directory of CDI specs can't be written.
	NoSpecs Obstacle = "CDINotWritable"
	// NotServed: no server answers Kata, so a VM would not get its devices.
	NotServed Obstacle = "PodResourcesNotServed"
)

// NotReady is why a node refuses all new claims.
type NotReady struct {
	Obstacle Obstacle `json:"obstacle"`
	// Text says what is wrong and what to do.
	Text string `json:"text"`
}

// Refusal is one reason why a claim's device can't be prepared.
type Refusal struct {
	Code Code `json:"code"`
	// Device is the device's name in the claim, Address its function.
	Device  string      `json:"device"`
	Address pci.Address `json:"address"`
	// Culprit is the function that causes the refusal, if it is another one, and Driver the kernel driver it is
	// bound to.
	Culprit *pci.Address `json:"culprit,omitempty"`
	Driver  string       `json:"driver,omitempty"`
	// Obstacle says why, for NodeNotReady.
	Obstacle Obstacle `json:"obstacle,omitempty"`
	// Check is the id of the worst of the audit's checks that fail, where that is the reason.
	Check string `json:"check,omitempty"`
	// Text says what is wrong, and Fix what to do, each as a clause.
	Text string `json:"text"`
	Fix  string `json:"fix"`
}

// join adds the other reasons why a group is not viable: all its members are named at once.
func (r *Refusal) join(others []isolation.Reason) {
	for i := range others {
		if o := &others[i]; o.Code == isolation.NotViable {
			r.Text += "; " + o.Text
			if !strings.Contains(r.Fix, o.Fix) {
				r.Fix += "; " + o.Fix
			}
		}
	}
}

// Error returns text and fix on one line.
func (r *Refusal) Error() string { return r.Device + ": " + r.Text + "; " + r.Fix }

// RefusedError says that a claim is refused, with every reason found.
type RefusedError struct {
	Claim    Ref
	Refusals []Refusal
}

func (e *RefusedError) Error() string {
	reasons := make([]string, len(e.Refusals))
	for i := range e.Refusals {
		reasons[i] = e.Refusals[i].Error()
	}
	return "claim " + e.Claim.String() + " is refused: " + strings.Join(reasons, "; and ")
}

// Has reports whether a refusal carries the code.
func (e *RefusedError) Has(code Code) bool {
	for i := range e.Refusals {
		if e.Refusals[i].Code == code {
			return true
		}
	}
	return false
}

// HoldsForItsKind reports whether a node of the same hardware, firmware, kernel settings and config would refuse the
// function as well, so that the refusal is not of this node's present state.
func (r *Refusal) HoldsForItsKind() bool {
	switch r.Code {
	case NotViable, NotIsolated, FailsAudit, NoReset, NoBackend, Denylisted, ServesVFIO, BARsUnassigned, BARReserved, MateNotSelected, WindowTooSmall:
		return true
	default:
		return false
	}
}

package plan

import (
	"fmt"
	"maps"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Assessment says whether a claim without parameters could get a function. Slices, plans, the audit and the tables of
// the commands all use it, so they can't contradict each other.
type Assessment struct {
	// Isolation is the judgment on the function's isolation. Its reasons are among the refusals.
	Isolation isolation.Judgment
	// Refusals are all reasons against the claim, in the order of the checks. [Make] refuses the claim with the first
	// one. A reason from [Node.Attempted] comes last, and [Make] ignores it.
	Refusals []rule.Verdict
}

// Faults returns the refusals that are faults of the device. It leaves out [rule.Held]: if another claim has the
// device, nobody has to act, and the scheduler knows it.
func (a *Assessment) Faults() []rule.Verdict {
	var faults []rule.Verdict
	for _, r := range a.Refusals {
		if r.Code != rule.Held {
			faults = append(faults, r)
		}
	}
	return faults
}

// Assessor assesses the functions of one node and caches facts that several functions share. It is not safe for
// concurrent use.
type Assessor struct {
	maker maker
	// defaults are the parameters of a device for which neither class nor claim sets any.
	defaults v1alpha1.VFIOConfig
}

// NewAssessor returns the assessor of a node. Missing facts count as absent: without Owners, for example, nothing is
// held or quarantined.
func NewAssessor(n Node) *Assessor {
	n.Attempted = n.lasting()
	a := &Assessor{maker: maker{node: n, known: newMemo(n.Snapshot)}}
	a.defaults.Default()
	return a
}

// Assess returns the judgment on a function of the node's snapshot.
func (a *Assessor) Assess(f *device.Function) Assessment {
	c := newCandidate(&a.maker, &claim.Device{Name: f.Name(), Address: f.Address, VFIO: a.defaults})
	var as Assessment
	for refusal := range c.refused() {
		as.Refusals = append(as.Refusals, refusal)
	}
	if refusal, ok := a.attempted(f); ok {
		as.Refusals = append(as.Refusals, refusal)
	}
	as.Isolation = a.maker.known.judgment(f)
	return as
}

// lasting returns [Node.Attempted] without the functions of lost claims whose records have ended.
func (n *Node) lasting() map[pci.Address]rule.Code {
	lasting := maps.Clone(n.Attempted)
	maps.DeleteFunc(lasting, func(a pci.Address, code rule.Code) bool {
		owner, held := n.Owners[a]
		return code == rule.HeldByLostClaim && (!held || owner.Bound)
	})
	return lasting
}

// attempted returns the refusal of a function that is in [Node.Attempted], or whose claim would include such a
// function. It keeps new claims away from the function. [Make] ignores it, so that a claim that comes nevertheless is
// tried: the reason may no longer exist.
func (a *Assessor) attempted(f *device.Function) (rule.Verdict, bool) {
	node := &a.maker.node
	at, ok := a.maker.known.attempts(node).Find(f)
	if !ok {
		return rule.Verdict{}, false
	}
	code := node.Attempted[at]
	r := rule.Verdict{
		Code: code, Device: f.Name(), Address: f.Address, Driver: f.Driver,
		Text: fmt.Sprintf("the latest claims that asked for %s were refused: %s", at, attemptWords(code)),
		Fix: "the claims' events and the plugin's log name what blocks the device; after that, the taint is removed when a claim is prepared, or at the " +
			"next look, which is ten minutes after the last failure or look",
	}
	if code == rule.HeldByLostClaim {
		r.Text = fmt.Sprintf("%s is still with claim %s on this node, and no longer at the API server", at, node.Owners[at].Claim.UID)
		r.Fix = "end the VM that has it, which `kata-vfio-plugin status` names; the taint is removed when the device is released"
	}
	if at != f.Address {
		r.Culprit = new(at)
	}
	return r, true
}

// attemptWords says why the latest attempts failed.
func attemptWords(code rule.Code) string {
	switch code {
	case rule.InUse:
		return "a process has it open"
	case rule.DiskInUse:
		return "one of its disks is in exclusive use"
	case rule.PartitionNotActivated:
		return "Fabric Manager does not activate a partition with it"
	default:
		return string(code)
	}
}

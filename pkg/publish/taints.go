package publish

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Keys of kata-vfio's taints. All have the effect NoSchedule, except for a drain that evicts: they keep new claims away and leave running
// pods alone. A claim may tolerate a taint, but Prepare still refuses the device.
const (
	// TaintNotIsolated is on a device with a reason against its isolation; the value
	// is the worst reason's code.
	TaintNotIsolated = v1alpha1.DriverName + "/not-isolated"
	// TaintQuarantined is on a device that could not be proven clean after a tenant, by its reset or by its sanitizing stage. The value is
	// the code of the reason: Quarantined, SanitizeFailed or FirmwareChanged. Plugins of older versions left it empty. A device that only
	// waits for its sanitizing stage has [v1alpha1.TaintSanitizing] instead.
	TaintQuarantined = v1alpha1.DriverName + "/quarantined"
	// TaintDrain is on a device that an operator takes out of use; the value is [rule.Draining] or [rule.Drained]. The effect is NoExecute
	// if the pods that use the device are to be evicted.
	TaintDrain = v1alpha1.DriverName + "/drain"
	// TaintDead is on a device that does not answer configuration reads.
	TaintDead = v1alpha1.DriverName + "/dead"
	// TaintLinkLost is on a device whose PCIe link went down.
	TaintLinkLost = v1alpha1.DriverName + "/link-lost"
	// TaintFatalErrors is on a device that reported fatal errors.
	TaintFatalErrors = v1alpha1.DriverName + "/fatal-errors"
	// TaintAudit is on a device if a check of the audit fails for it or its node, and the plugin's flags make that check count (by default
	// from severity high on). The value is the ID of the worst such check; [AttrAuditFailed] lists all.
	TaintAudit = v1alpha1.DriverName + "/audit"
	// TaintNotPreparable is on a device for which Prepare would refuse every claim for
	// another reason; the value is the refusal's code ([rule.Code]).
	TaintNotPreparable = v1alpha1.DriverName + "/not-preparable"
	// TaintNodeNotReady is on all devices of a node that refuses all new claims; the value says why ([rule.Verdict.Obstacle]).
	TaintNodeNotReady = v1alpha1.DriverName + "/node-not-ready"
	// TaintWithdrawn is on a device that is no longer offered and may still be a claim's. The value says why: Forbidden, PFStaysOnHost,
	// NotOurs, GPUNotSliced, Gone, Moved, Renamed ([rule.Renamed]).
	TaintWithdrawn = v1alpha1.DriverName + "/withdrawn"
)

// taintList collects taints, each key once.
type taintList []resourceapi.DeviceTaint

func (l *taintList) add(on bool, key, value string) {
	if on && !l.has(key) {
		*l = append(*l, resourceapi.DeviceTaint{Key: key, Value: value, Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
}

func (l *taintList) has(key string) bool {
	return slices.ContainsFunc(*l, func(t resourceapi.DeviceTaint) bool { return t.Key == key })
}

// drain adds the taint of a drain. If the functions of a device differ, the value Draining wins over a finished drain, and eviction wins
// over none.
func (l *taintList) drain(h Health) {
	if h.Drained == "" {
		return
	}
	l.add(true, TaintDrain, string(h.Drained))
	i := slices.IndexFunc(*l, func(t resourceapi.DeviceTaint) bool { return t.Key == TaintDrain })
	if h.Drained == rule.Draining {
		(*l)[i].Value = string(rule.Draining)
	}
	if h.Evict {
		(*l)[i].Effect = resourceapi.DeviceTaintEffectNoExecute
	}
}

// taints returns the taints of all functions of a device, in a fixed order.
func taints(n *Node, e *entry) []resourceapi.DeviceTaint {
	var l taintList
	l.add(e.withdrawn != "", TaintWithdrawn, string(e.withdrawn))
	for _, p := range e.parts() {
		l.part(n, p)
	}
	// add keeps the first value of a key. So a check that fails for the device itself names the taint, rather than a check that fails for a
	// function which a claim of the device would include.
	if failing := n.failing(e); len(failing) > 0 {
		l.add(true, TaintAudit, failing[0].ID)
	}
	for _, p := range e.parts() {
		l.audit(n, p)
	}
	return l
}

// part adds the taints of one function: one for each reason in the judgment on it. So a device without a taint can be prepared.
func (l *taintList) part(n *Node, p part) {
	l.drain(n.Health[p.addr])
	if p.f == nil {
		return
	}
	as, judged := n.Assessments[p.addr]
	worst, found := findWorst(as.Isolation.Reasons)
	for _, r := range as.Faults() {
		l.refused(&r, found)
	}
	l.add(found, TaintNotIsolated, string(worst.Code))
	// A function without a judgment counts as not isolated. If there is a worst reason, its taint was added above, and this call changes
	// nothing.
	l.add(!judged || !as.Isolation.Isolated, TaintNotIsolated, string(rule.NotJudged))
}

// audit adds the taint for checks that fail for another function that a claim of this one would include.
func (l *taintList) audit(n *Node, p part) {
	as := n.Assessments[p.addr]
	for _, r := range as.Faults() {
		l.add(r.Code == rule.FailsAudit, TaintAudit, r.Check)
	}
}

// refused adds the taint of a refusal. A refusal because of the isolation has a taint of its own.
func (l *taintList) refused(r *rule.Verdict, notIsolated bool) {
	switch r.Code {
	case rule.Quarantined, rule.SanitizeFailed, rule.FirmwareChanged:
		// The value says what failed to users who have no access to the node.
		l.add(true, TaintQuarantined, string(r.Code))
	case rule.NotSanitized:
		l.add(true, v1alpha1.TaintSanitizing, r.Object)
	case rule.DomainOfOtherTenant:
		l.tenant(r.Object)
	case rule.ConfigSpaceDead:
		l.add(true, TaintDead, "")
	case rule.LinkLost:
		l.add(true, TaintLinkLost, "")
	case rule.FatalErrors:
		l.add(true, TaintFatalErrors, "")
	case rule.Drained:
		l.add(true, TaintDrain, string(rule.Draining))
	case rule.NodeNotReady:
		l.add(true, TaintNodeNotReady, string(r.Obstacle))
	case rule.FailsAudit: // added last: see audit
	default:
		l.add(!l.explains(r.Code, notIsolated), TaintNotPreparable, string(r.Code))
	}
}

// explains reports whether another taint already stands for a refusal with the code.
func (l *taintList) explains(code rule.Code, notIsolated bool) bool {
	switch code {
	case rule.NotIsolated, rule.GroupNotViable, rule.NoReset:
		return notIsolated
	case rule.NotOurs, rule.GPUNotSliced, rule.Forbidden, rule.PFStaysOnHost, rule.WrongType, rule.Absent:
		return l.has(TaintWithdrawn)
	default:
		return false
	}
}

// tenant adds the taint of an exclusive domain. If a device is in the domains of two tenants, the taint gets a value that no claim
// tolerates.
func (l *taintList) tenant(id string) {
	l.add(true, v1alpha1.TaintTenant, id)
	for i, t := range *l {
		if t.Key == v1alpha1.TaintTenant && t.Value != id {
			(*l)[i].Value = plan.SeveralTenants
		}
	}
}

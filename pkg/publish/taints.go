package publish

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Keys of our taints. All have the effect NoSchedule, except for a drain that evicts: they keep new claims away
// and leave running pods alone. A claim may tolerate a taint, but Prepare still refuses it.
const (
	// TaintNotIsolated is on a device with a reason against its isolation; the value
	// is the worst reason's code.
	TaintNotIsolated = v1alpha1.DriverName + "/not-isolated"
	// TaintQuarantined is on a device that could not be proven clean after a tenant, by its reset or by its sanitizing stage.
	// The value is the code of the reason: Quarantined, SanitizeFailed or FirmwareChanged; empty by plugins of older versions. One that only
	// waits for the stage has [v1alpha1.TaintSanitizing].
	TaintQuarantined = v1alpha1.DriverName + "/quarantined"
	// TaintDrain is on a device that an operator takes out of use; the value is a
	// [DrainState]. The effect is NoExecute where the pods that have it are to go.
	TaintDrain = v1alpha1.DriverName + "/drain"
	// TaintDead is on a device that does not answer configuration reads.
	TaintDead = v1alpha1.DriverName + "/dead"
	// TaintLinkLost is on a device whose PCIe link went down.
	TaintLinkLost = v1alpha1.DriverName + "/link-lost"
	// TaintFatalErrors is on a device that reported fatal errors.
	TaintFatalErrors = v1alpha1.DriverName + "/fatal-errors"
	// TaintAudit is on a device if a check of the audit fails for it or its node and counts by the plugin's flags
	// (by default from severity high on). The value is the id of the worst; [AttrAuditFailed] has them all.
	TaintAudit = v1alpha1.DriverName + "/audit"
	// TaintNotPreparable is on a device for which Prepare would refuse every claim for
	// another reason; the value is the refusal's code ([rule.Code]).
	TaintNotPreparable = v1alpha1.DriverName + "/not-preparable"
	// TaintNodeNotReady is on all devices of a node that refuses all new claims; the value says why ([rule.Verdict.Obstacle]).
	TaintNodeNotReady = v1alpha1.DriverName + "/node-not-ready"
	// TaintWithdrawn is on a device that is no longer offered and may be a claim's. The value says why: Forbidden,
	// PFStaysOnHost, NotOurs, GPUNotSliced, Gone, Moved, [WithdrawnRenamed].
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

// drain adds the taint of a drain. Of a device's functions the one that is not
// drained yet counts, and the one that evicts.
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

// taints returns the taints of a device, in a fixed order: those of any of its
// functions.
func taints(n *Node, e *entry) []resourceapi.DeviceTaint {
	var l taintList
	l.add(e.withdrawn != "", TaintWithdrawn, string(e.withdrawn))
	for _, p := range e.parts() {
		l.part(n, p)
	}
	// add keeps the first value of a key, so a failure of the device itself names the taint before one of a function
	// that a claim would include.
	if failing := n.failing(e); len(failing) > 0 {
		l.add(true, TaintAudit, failing[0].ID)
	}
	for _, p := range e.parts() {
		l.audit(n, p)
	}
	return l
}

// part adds the taints of one function: one for each reason of the judgment on it, so
// that what is published without a taint can be prepared.
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
	// A function without a judgment counts as not isolated. The worst reason, if there is one, was added before and
	// stands.
	l.add(!judged || !as.Isolation.Isolated, TaintNotIsolated, string(rule.NotJudged))
}

// audit adds the taint of checks that fail for one that a claim would include.
func (l *taintList) audit(n *Node, p part) {
	as := n.Assessments[p.addr]
	for _, r := range as.Faults() {
		l.add(r.Code == rule.FailsAudit, TaintAudit, r.Check)
	}
}

// refused adds the taint of a refusal. A reason against the isolation has its own taint.
func (l *taintList) refused(r *rule.Verdict, notIsolated bool) {
	switch r.Code {
	case rule.Quarantined, rule.SanitizeFailed, rule.FirmwareChanged:
		// The value tells those who may not look at the node what failed.
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
	case rule.FailsAudit: // last, see audit
	default:
		l.add(!l.explains(r.Code, notIsolated), TaintNotPreparable, string(r.Code))
	}
}

// explains reports whether another taint says the same as a refusal with the code.
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

// tenant adds the taint of an exclusive domain. No claim tolerates it for a device in the domains of two tenants.
func (l *taintList) tenant(id string) {
	l.add(true, v1alpha1.TaintTenant, id)
	for i, t := range *l {
		if t.Key == v1alpha1.TaintTenant && t.Value != id {
			(*l)[i].Value = plan.SeveralTenants
		}
	}
}

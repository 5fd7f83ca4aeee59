package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// domainsView has the objects that a decision about the exclusive domains of a node is based on.
type domainsView struct {
	// cluster has the slices of the node, and at least all claims with its devices.
	cluster *cluster.Cluster
	node    string
	// tenants is the data of [v1alpha1.TenantsConfigMap].
	tenants map[string]string
	// stages is the namespace of sanitizing stages; empty if there is none.
	stages string
}

// reservation is the answer to a claim whose pod waits for its domains.
type reservation struct {
	claim *cluster.Claim
	// kind and isTrue are the condition's type and status.
	kind    string
	isTrue  bool
	reason  rule.Code
	message string
}

// contender is a claim that has devices of the node to itself.
type contender struct {
	claim   *cluster.Claim
	tenant  string
	isStage bool
	domains []string
	// kept are the tenants that the taints of its devices name.
	kept []string
}

// reserve returns the answers to all claims of the node that have none yet. It takes the claims in the order of their
// allocation, and reserves a claim's domains unless another tenant has one of them. A tenant has a domain by a claim whose
// domains are reserved, or that needs no answer. The tenant also has it while a device's taint says so, by which the plugin
// marks devices that are not clean yet.
//
// The promise that a domain has one tenant does not depend on reserve: the plugin refuses another tenant's claim when it
// prepares it.
func (v *domainsView) reserve() []reservation {
	var holders, waiting []contender
	for _, c := range v.contenders() {
		switch answerTo(c.claim) {
		case unanswered:
			waiting = append(waiting, c)
		case refusedDomains: // the scheduler takes the allocation back
		default:
			if !c.isStage { // the taint of a stage's device says that the last tenant still has it
				holders = append(holders, c)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b contender) int {
		x, y := a.claim.Object, b.claim.Object
		// The API's times have whole seconds. The UID orders claims of one second, in each controller alike.
		return cmp.Or(allocatedAt(x).Compare(allocatedAt(y).Time), cmp.Compare(x.UID, y.UID))
	})
	var all []reservation
	for _, c := range waiting {
		r, reserved := v.answer(&c, holders)
		if reserved && !c.isStage {
			holders = append(holders, c)
		}
		if !isSaid(&r) {
			all = append(all, r)
		}
	}
	return all
}

// contenders returns the claims that have devices of the node, in the order in which they were added.
func (v *domainsView) contenders() []contender {
	var all []contender
	for _, listed := range v.cluster.Claims() {
		c := contender{claim: listed, isStage: v.stages != "" && listed.Object.Namespace == v.stages}
		c.tenant = v.tenants[v1alpha1.TenantKey(listed.Object.Namespace)]
		isHere := false
		for _, id := range listed.Owned() {
			if id.IsOurs() && id.Node() == v.node {
				isHere = true
				c.add(v.cluster.Device(id))
			}
		}
		if isHere || answerTo(listed) == unanswered && waitsOn(listed, v.node) {
			all = append(all, c)
		}
	}
	return all
}

// add adds the domains of a device. A device that is not published may be in any domain, so it counts as the whole node.
func (c *contender) add(d *cluster.Device) {
	if d == nil || d.Details == nil {
		c.domains = append(c.domains, string(isolation.NodeDomain))
		return
	}
	c.domains = append(c.domains, d.Details.Domains...)
	for _, t := range d.Taints {
		if t.Key == v1alpha1.TaintTenant {
			c.kept = append(c.kept, t.Value)
		}
	}
}

// answer decides about one claim, and says whether its domains are reserved.
func (v *domainsView) answer(c *contender, holders []contender) (r reservation, reserved bool) {
	if c.isStage {
		return reservation{c.claim, v1alpha1.ConditionDomainReserved, true, rule.DomainFree, "the claim is a sanitizing stage, which belongs to no tenant"}, true
	}
	if !v1alpha1.IsTenantID(c.tenant) {
		return reservation{
			c.claim, v1alpha1.ConditionDomainReserved, false, rule.TenantUnknown,
			fmt.Sprintf("namespace %s has no tenant ID yet; kata-vfio-controller registers it in ConfigMap %s", c.claim.Object.Namespace, v1alpha1.TenantsConfigMap),
		}, false
	}
	if i := slices.IndexFunc(c.kept, func(id string) bool { return id != c.tenant }); i >= 0 {
		return taken(c, "another tenant has devices there, or had them and they are not clean yet"), false
	}
	for i := range holders {
		h := &holders[i]
		if shared := isolation.Overlap(c.domains, h.domains); shared != "" && h.tenant != c.tenant {
			return taken(c, fmt.Sprintf("another tenant's claim was first in %s", shared)), false
		}
	}
	return reservation{c.claim, v1alpha1.ConditionDomainReserved, true, rule.DomainFree, "no other tenant has " + strings.Join(unique(c.domains), ", ") + " of node " + v.node}, true
}

func taken(c *contender, why string) reservation {
	return reservation{
		c.claim, v1alpha1.ConditionDomainTaken, true, rule.DomainTaken,
		"the exclusive domains of the allocated devices are not free: " + why + "; the scheduler looks for other devices",
	}
}

func unique(keys []string) []string {
	set := map[string]bool{}
	for _, k := range keys {
		set[k] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// Answers to a claim, for its present allocation.
const (
	needsNone = iota
	unanswered
	refusedDomains
	reservedDomains
)

// answerTo returns which answer a claim has.
func answerTo(c *cluster.Claim) int {
	if !waits(c.Object) {
		return needsNone
	}
	for _, s := range c.Statuses {
		for _, cond := range s.Object.Conditions {
			if cond.Status != metav1.ConditionTrue || !isOfAllocation(c.Object, &cond) {
				continue
			}
			switch cond.Type {
			case v1alpha1.ConditionDomainReserved:
				return reservedDomains
			case v1alpha1.ConditionDomainTaken:
				return refusedDomains
			}
		}
	}
	return unanswered
}

// isSaid reports whether the claim already has the condition. An answer that leaves the claim waiting, such as an unknown
// tenant, is therefore written once.
func isSaid(r *reservation) bool {
	for _, s := range r.claim.Statuses {
		for _, cond := range s.Object.Conditions {
			if cond.Type == r.kind && cond.Reason == string(r.reason) && isOfAllocation(r.claim.Object, &cond) {
				return true
			}
		}
	}
	return false
}

// isOfAllocation reports whether a condition is about the present allocation of a claim: the status may outlive an allocation.
func isOfAllocation(o *resourceapi.ResourceClaim, cond *metav1.Condition) bool {
	return !cond.LastTransitionTime.Before(allocatedAt(o))
}

// allocatedAt returns when a claim was allocated.
func allocatedAt(o *resourceapi.ResourceClaim) *metav1.Time {
	if o.Status.Allocation == nil || o.Status.Allocation.AllocationTimestamp == nil {
		return &metav1.Time{}
	}
	return o.Status.Allocation.AllocationTimestamp
}

// waits reports whether the scheduler waits for an answer about devices of a claim.
func waits(o *resourceapi.ResourceClaim) bool { return len(waitingDevices(o)) > 0 }

// waitsOn is waits for the devices of a node.
func waitsOn(c *cluster.Claim, node string) bool {
	return slices.ContainsFunc(waitingDevices(c.Object), func(d resourceapi.DeviceRequestAllocationResult) bool {
		return cluster.ID{Pool: d.Pool}.Node() == node
	})
}

// waitingDevices returns the devices of a claim for which the scheduler waits until their domains are reserved.
func waitingDevices(o *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if o.Status.Allocation == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Status.Allocation.Devices.Results), func(d resourceapi.DeviceRequestAllocationResult) bool {
		return d.Driver != v1alpha1.DriverName || !slices.Contains(d.BindingConditions, v1alpha1.ConditionDomainReserved)
	})
}

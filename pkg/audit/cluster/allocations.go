package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// allocationChecks are about the allocations that schedulers write into claims. kube-scheduler keeps these rules. Another
// scheduler, or two schedulers at once, may break them.
func allocationChecks() []Check {
	return []Check{
		{ID: "K8S-035", Needs: []string{"resourceclaims", "resourceslices"}, Judge: allocatedOnce},
		{ID: "K8S-036", Needs: []string{"resourceclaims", "pods", "runtimeclasses"}, Judge: claimsProtected},
		{ID: "K8S-037", Needs: []string{"resourceclaims"}, Judge: allocationsUsed},
	}
}

// allocatedOnce names the claims that have the same device, or one with the same PCI function. Two schedulers that allocate from one pool
// do not see each other's choices before they are written.
func allocatedOnce(s *State) []finding.Finding {
	var found []finding.Finding
	owners := map[string]*cluster.Claim{}
	devices := 0
	for _, c := range s.Cluster.Claims() {
		for _, a := range c.Ours() {
			if a.Admin { // a claim with admin access only observes, so another claim may have the device
				continue
			}
			devices++
			if first := s.own(owners, a.ID, c); first != nil {
				f := fail("claim "+c.Name(), fmt.Sprintf("device %s of pool %s is allocated to claim %s and to claim %s", a.ID.Name, a.ID.Pool, first.Name(), c.Name()))
				f.Tenants = []string{first.Object.Namespace, c.Object.Namespace}
				found = append(found, f)
			}
		}
	}
	if devices == 0 {
		return notApplicable("no claim has a device of kata-vfio")
	}
	return orPass(found, output.Count(devices, "allocated device"))
}

// own records that a claim has a device. It returns an earlier claim that has the same device, or a device with one of its
// functions; nil if there is none.
func (s *State) own(owners map[string]*cluster.Claim, id cluster.ID, c *cluster.Claim) *cluster.Claim {
	keys := []string{id.String()}
	// A GPU and a pair of it and a VF are different devices on the same function.
	if d := s.Cluster.Device(id); d != nil {
		for _, at := range d.Places {
			keys = append(keys, at.String())
		}
	}
	var first *cluster.Claim
	for _, key := range keys {
		if had := owners[key]; had != nil && had != c {
			first = had
			continue
		}
		owners[key] = c
	}
	return first
}

// claimsProtected names allocated claims that anyone may delete while a pod uses them, and running pods whose claim was deleted.
// After a deletion, the scheduler gives the devices to another claim, which the plugin refuses while the VM has them.
func claimsProtected(s *State) []finding.Finding {
	var found []finding.Finding
	judged := 0
	for _, c := range s.Cluster.Claims() {
		if !c.HasOurs() {
			continue
		}
		judged++
		if !slices.Contains(c.Object.Finalizers, resourceapi.Finalizer) {
			found = append(found, of(c.Object.Namespace, fail("claim "+c.Name(),
				fmt.Sprintf("claim %s has devices and no finalizer %s: it can be deleted while a pod uses them", c.Name(), resourceapi.Finalizer))))
		}
	}
	for _, p := range s.Cluster.Pods() {
		if !s.holdsDevices(p) || s.ended[p.Object.UID] {
			continue
		}
		judged++
		for _, name := range s.lostClaims(p) {
			found = append(found, of(p.Object.Namespace, fail("pod "+p.Name(), fmt.Sprintf("pod %s runs on %s, and its claim %s no longer exists", p.Name(), p.Object.Spec.NodeName, name))))
		}
	}
	if judged == 0 {
		return notApplicable("no claim has a device of kata-vfio")
	}
	return orPass(found, output.Count(judged, "claim and pod", "claims and pods"))
}

// holdsDevices reports whether a pod runs, in a VM that may have devices of ours.
func (s *State) holdsDevices(p *cluster.Pod) bool {
	class := p.Object.Spec.RuntimeClassName
	return p.Object.Status.Phase == corev1.PodRunning && class != nil && slices.Contains(s.Options.RuntimeClasses, *class)
}

// lostClaims returns the names of a pod's claims that were not listed. Only the status of its pod still names a deleted claim.
func (s *State) lostClaims(p *cluster.Pod) []string {
	return slices.DeleteFunc(slices.Clone(p.Claims), func(name string) bool { return s.Cluster.Claim(p.Object.Namespace, name) != nil })
}

// podsAgain lists the pods of a namespace again in which a pod holds devices and its claim was not listed: the claims were listed after
// the pods, so the pod may have ended in between, and its claim with it.
func (l *lister) podsAgain() {
	s := l.state
	if s.Missing["resourceclaims"] != "" {
		return
	}
	s.ended = map[types.UID]bool{}
	suspects := slices.DeleteFunc(slices.Clone(s.Cluster.Pods()), func(p *cluster.Pod) bool { return !s.holdsDevices(p) || len(s.lostClaims(p)) == 0 })
	running := map[string]map[types.UID]bool{} // by namespace
	for _, p := range suspects {
		namespace := p.Object.Namespace
		if running[namespace] == nil {
			now := map[types.UID]bool{}
			each(l, "pods", namespace, &corev1.PodList{}, func(o *corev1.Pod) { now[o.UID] = o.Status.Phase == corev1.PodRunning })
			running[namespace] = now
		}
		if !running[namespace][p.Object.UID] {
			s.ended[p.Object.UID] = true
		}
	}
}

// allocationsUsed names claims that keep devices allocated although no pod uses them. The control plane removes an allocation when
// the last pod is gone, but only from claims with its finalizer.
func allocationsUsed(s *State) []finding.Finding {
	var found []finding.Finding
	allocated := 0
	for _, c := range s.Cluster.Claims() {
		if !c.HasOurs() {
			continue
		}
		allocated++
		// A pod is added to reservedFor when it is scheduled. A pod that still waits is found by its own spec and status.
		if len(c.Object.Status.ReservedFor) == 0 && !s.Cluster.IsUsed(c) {
			found = append(found, of(c.Object.Namespace, fail("claim "+c.Name(), fmt.Sprintf("claim %s keeps device %s, and no pod uses it", c.Name(), c.Ours()[0].ID.Name))))
		}
	}
	if allocated == 0 {
		return notApplicable("no claim has a device of kata-vfio")
	}
	return orPass(found, output.Count(allocated, "allocated claim"))
}

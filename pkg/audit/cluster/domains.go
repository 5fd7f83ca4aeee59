package cluster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// domainChecks are about exclusive domains, which belong to one tenant at a time.
func domainChecks() []Check {
	return []Check{{ID: "K8S-033", Needs: []string{"resourceslices", "resourceclaims"}, Judge: oneTenantEach}}
}

// publishTime is how long a node may take to publish the taints of a domain after a tenant got a device there. The plugin writes
// its slices a few seconds after it prepared a claim, and an API server that throttles the plugin delays this.
const publishTime = 2 * time.Minute

// occupant is a claim that has a prepared device in exclusive domains.
type occupant struct {
	claim *cluster.Claim
	// tenant is the ID that the claim tolerates; empty if it tolerates none.
	tenant  string
	domains []string
	since   time.Time
}

// sharesTenant reports whether two claims are of one tenant: several namespaces may have one ID.
func (o *occupant) sharesTenant(other *occupant) bool {
	return o.claim.Object.Namespace == other.claim.Object.Namespace || o.tenant != "" && o.tenant == other.tenant
}

// oneTenantEach compares the exclusive domains in slices with the claims that are prepared there. Each domain must have one tenant,
// and no slice may offer its free devices to others.
func oneTenantEach(s *State) []finding.Finding {
	var found []finding.Finding
	devices := 0
	for _, node := range s.exclusiveNodes() {
		occupants := s.occupants(node)
		devices += len(occupants)
		found = slices.Concat(found, intruders(node, occupants), s.offered(node, occupants))
	}
	if devices == 0 {
		return notApplicable("no claim has a device of an exclusive domain")
	}
	return orPass(found, output.Count(devices, "prepared device")+" of exclusive domains")
}

// exclusiveNodes returns the nodes that publish devices of exclusive domains, sorted.
func (s *State) exclusiveNodes() []string {
	nodes := map[string]bool{}
	for _, d := range s.Cluster.Devices() {
		if d.IsOurs() && len(d.Details.Domains) > 0 {
			nodes[d.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// occupants returns the claims that have prepared devices in the domains of a node, one for each device, in the order of preparation. The
// claims of sanitizing stages are left out, because their device still belongs to its last tenant.
func (s *State) occupants(node string) []*occupant {
	var all []*occupant
	for _, h := range s.held(node) {
		c, d := h.status.Claim, s.Cluster.Device(h.status.ID)
		if d == nil || d.Details == nil || len(d.Details.Domains) == 0 || isStage(c) {
			continue
		}
		all = append(all, &occupant{claim: c, tenant: toleratedTenant(c), domains: d.Details.Domains, since: h.since})
	}
	slices.SortStableFunc(all, func(a, b *occupant) int { return a.since.Compare(b.since) })
	return all
}

// intruders names the claims that have a device in a domain in which another tenant had a device earlier.
func intruders(node string, all []*occupant) []finding.Finding {
	var found []finding.Finding
	for i, o := range all {
		j := slices.IndexFunc(all[:i], func(first *occupant) bool {
			return !o.sharesTenant(first) && isolation.Overlap(o.domains, first.domains) != ""
		})
		if j < 0 {
			continue
		}
		first := all[j]
		f := fail("claim "+o.claim.Name(), fmt.Sprintf("claim %s has a device in exclusive domain %s of node %s, and claim %s of another tenant was first there",
			o.claim.Name(), isolation.Overlap(o.domains, first.domains), node, first.claim.Name()))
		f.Tenants = []string{first.claim.Object.Namespace, o.claim.Object.Namespace}
		found = append(found, f)
	}
	return found
}

// offered names the node if its slices offer free devices of a tenant's domain to other tenants, with the first such device.
func (s *State) offered(node string, all []*occupant) []finding.Finding {
	for _, d := range s.Cluster.On(node) {
		if !d.IsOurs() || s.Cluster.Holder(d.ID) != nil {
			continue
		}
		i := slices.IndexFunc(all, func(o *occupant) bool {
			return s.isPublished(o) && isolation.Overlap(d.Details.Domains, o.domains) != "" && !keepsFor(d.Taints, o.tenant)
		})
		if i < 0 {
			continue
		}
		o := all[i]
		f := onNode(node, fmt.Sprintf("offers free device %s to tenants other than that of claim %s, which has exclusive domain %s",
			d.ID.Name, o.claim.Name(), isolation.Overlap(d.Details.Domains, o.domains)), saw("ResourceSlice "+d.Slice, d.ID.Name))
		return []finding.Finding{of(o.claim.Object.Namespace, f)}
	}
	return nil
}

// isPublished reports whether the node has had enough time to publish the taints of a claim's domains.
func (s *State) isPublished(o *occupant) bool {
	return s.Now.IsZero() || s.Now.Sub(o.since) > publishTime
}

// keepsFor reports whether the taints keep a device from all tenants but one. Any other taint that stops pods, such as that of a
// quarantine, counts too. If tenant is empty, the taint of any tenant is enough.
func keepsFor(taints []resourceapi.DeviceTaint, tenant string) bool {
	return slices.ContainsFunc(taints, func(t resourceapi.DeviceTaint) bool {
		switch {
		case t.Effect == resourceapi.DeviceTaintEffectNone:
			return false
		case t.Key != v1alpha1.TaintTenant:
			return true
		}
		return tenant == "" || t.Value == tenant || !v1alpha1.IsTenantID(t.Value)
	})
}

// toleratedTenant returns the ID of the tenant whose domains the claim tolerates; empty if there is none.
func toleratedTenant(c *cluster.Claim) string {
	for _, t := range c.Tolerations() {
		if t.Key == v1alpha1.TaintTenant && v1alpha1.IsTenantID(t.Value) {
			return t.Value
		}
	}
	return ""
}

// isStage reports whether a claim belongs to a sanitizing stage. It goes by the toleration of the stage's taint, which admission
// refuses for all other claims.
func isStage(c *cluster.Claim) bool {
	return slices.ContainsFunc(c.Tolerations(), func(t resourceapi.DeviceToleration) bool { return t.Key == v1alpha1.TaintSanitizing })
}

package cluster

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

func deviceChecks() []Check {
	return []Check{
		{ID: "K8S-010", Needs: []string{"resourceslices"}, Judge: publishedOnce},
		{ID: "K8S-015", Needs: []string{"deviceclasses", "validatingadmissionpolicies", "validatingadmissionpolicybindings"}, Judge: extendedResources},
		{ID: "K8S-018", Needs: []string{"resourceclaims"}, Judge: preparedAgrees},
		{ID: "K8S-021", Needs: []string{"resourcequotas", "namespaces"}, Judge: quotas},
		{ID: "K8S-022", Needs: []string{"resourceclaims", "namespaces", "deviceclasses"}, Judge: tolerations},
	}
}

func publishedOnce(s *State) []finding.Finding {
	var found []finding.Finding
	places := s.Cluster.Places()
	for _, at := range places {
		var drivers []string
		for _, d := range s.Cluster.At(at) {
			drivers = append(drivers, d.ID.Driver)
		}
		slices.Sort(drivers)
		drivers = slices.Compact(drivers)
		if len(drivers) > 1 && slices.Contains(drivers, v1alpha1.DriverName) {
			found = append(found, fail("node "+at.Node+" "+at.Address.String(), fmt.Sprintf("function %s of node %s is published by %s", at.Address, at.Node, strings.Join(drivers, " and "))))
		}
	}
	return orPass(found, output.Count(len(places), "function"))
}

// extendedResources looks for a policy that covers the names: one for which each DeviceClass is a
// parameter, or the text of one that lists them, as in earlier charts.
func extendedResources(s *State) []finding.Finding {
	all, text := s.looksAtClasses(), s.expressions()
	var found []finding.Finding
	named := 0
	for _, c := range s.Cluster.OurClasses() {
		if c.Spec.ExtendedResourceName == nil {
			continue
		}
		named++
		// The search includes the quotes of the chart's expressions, because a name may be the beginning of another name.
		if name := *c.Spec.ExtendedResourceName; !all && !strings.Contains(text, "'"+name+"'") {
			found = append(found, fail("DeviceClass "+c.Name, fmt.Sprintf("no policy knows that %s asks for a device of DeviceClass %s", name, c.Name)))
		}
	}
	if named == 0 {
		return notApplicable("no DeviceClass of kata-vfio has an extended resource")
	}
	return orPass(found, output.Count(named, "extended resource"))
}

// looksAtClasses reports whether the policy for pods' extended resources is in force, and requires VMs for the extended resources
// of every DeviceClass.
func (s *State) looksAtClasses() bool {
	const name = "tenant-pod-classes"
	if s.bound(name)[0].State != finding.Pass {
		return false
	}
	spec := &s.Cluster.Policy(name + "." + v1alpha1.DriverName).Object.Spec
	return spec.ParamKind != nil && spec.ParamKind.Kind == "DeviceClass" &&
		slices.ContainsFunc(spec.Validations, func(v admissionv1.Validation) bool { return strings.Contains(v.Expression, "runtimeClassName") })
}

// expressions returns the expressions of all policies of the chart.
func (s *State) expressions() string {
	var text strings.Builder
	for _, p := range s.Cluster.Policies() {
		for _, v := range p.Object.Spec.Validations {
			if strings.HasSuffix(p.Object.Name, "."+v1alpha1.DriverName) {
				text.WriteString(v.Expression + "\n")
			}
		}
	}
	return text.String()
}

func preparedAgrees(s *State) []finding.Finding {
	var found []finding.Finding
	prepared := 0
	for _, c := range s.Cluster.Claims() {
		for _, status := range c.Statuses {
			prepared++
			if text := disagrees(status); text != "" {
				found = append(found, of(c.Object.Namespace, fail("claim "+c.Name(), "claim "+c.Name()+" "+text)))
			}
		}
	}
	if prepared == 0 {
		return notApplicable("no claim has a prepared device of kata-vfio")
	}
	return orPass(found, output.Count(prepared, "prepared device"))
}

// disagrees describes the difference between a claim's prepared and allocated devices; empty if there is none.
func disagrees(status *cluster.Status) string {
	c := status.Claim
	if c.Object.Status.Allocation == nil {
		return "is not allocated, and device " + status.ID.Name + " is prepared for it"
	}
	switch {
	case !slices.ContainsFunc(c.Allocated, func(a cluster.Allocated) bool { return a.ID == status.ID }):
		return "has device " + status.ID.Name + " prepared that is not allocated to it"
	case len(c.Object.Status.ReservedFor) == 0:
		return "has device " + status.ID.Name + " prepared, and no pod"
	}
	return ""
}

func quotas(s *State) []finding.Finding {
	var found []finding.Finding
	tenants := 0
	for i := range s.Namespaces {
		n := s.Namespaces[i].Name
		if !s.isTenant(n) || n == s.Options.ProbeNamespace {
			continue
		}
		tenants++
		if !s.hasQuota(n) {
			found = append(found, of(n, fail("namespace "+n, "namespace "+n+" has no quota of devices or claims")))
		}
	}
	if tenants == 0 {
		return notApplicable("no namespace has the label " + s.Options.TenantLabel)
	}
	return orPass(found, output.Count(tenants, "tenant's namespace"))
}

func (s *State) hasQuota(namespace string) bool {
	for i := range s.Quotas {
		q := &s.Quotas[i]
		for name := range q.Spec.Hard {
			limits := strings.Contains(string(name), ".deviceclass.resource.k8s.io/") || string(name) == "count/resourceclaims.resource.k8s.io"
			if q.Namespace == namespace && limits {
				return true
			}
		}
	}
	return false
}

func tolerations(s *State) []finding.Finding {
	var found []finding.Finding
	for _, one := range s.Cluster.Claims() {
		c := one.Object
		if !s.isTenant(c.Namespace) {
			continue
		}
		for i := range c.Spec.Devices.Requests {
			if r := &c.Spec.Devices.Requests[i]; s.tolerates(r) {
				found = append(found, of(c.Namespace, fail("claim "+one.Name(), "request "+r.Name+" of claim "+one.Name()+" tolerates taints of devices")))
			}
		}
	}
	return orPass(found, output.Count(len(s.Cluster.Claims()), "claim"))
}

// tolerates reports whether a request for devices of ours tolerates taints.
func (s *State) tolerates(r *resourceapi.DeviceRequest) bool {
	if r.Exactly != nil && toleratesMore(r.Exactly.Tolerations) && s.Cluster.IsOurClass(r.Exactly.DeviceClassName) {
		return true
	}
	return slices.ContainsFunc(r.FirstAvailable, func(sub resourceapi.DeviceSubRequest) bool {
		return toleratesMore(sub.Tolerations) && s.Cluster.IsOurClass(sub.DeviceClassName)
	})
}

// toleratesMore reports whether there are tolerations besides the one that the policy exclusive-domains adds, for the domains of
// one tenant. The policy exclusive-claims refuses claims that tolerate the domains of another tenant.
func toleratesMore(all []resourceapi.DeviceToleration) bool {
	if len(all) == 0 {
		return false
	}
	t := &all[0]
	ofTenant := t.Key == v1alpha1.TaintTenant && t.Operator == resourceapi.DeviceTolerationOpEqual &&
		t.Effect == resourceapi.DeviceTaintEffectNoSchedule && v1alpha1.IsTenantID(t.Value)
	return len(all) > 1 || !ofTenant
}

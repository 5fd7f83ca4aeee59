package cluster

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

func policyChecks() []Check {
	policies := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	return []Check{
		{
			Rule: finding.Rule{
				ID: "K8S-001", Title: "Ensure that policies keep tenants' pods with devices in VMs, and work", Severity: critical,
				Why:     "A pod with another runtime gets the raw device without a VM.",
				Fix:     "install the chart with admission.tenants.enabled=true and admission.action=Deny, and label every tenant's namespace",
				Verify:  "kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings -l app.kubernetes.io/name=kata-vfio",
				Sources: []string{"Kubernetes: Validating Admission Policy"},
			}, needs: policies, judge: tenantPolicies,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-007", Title: "Ensure that only the plugin publishes its devices, each for its own node", Severity: high,
				Why:    "Whoever writes the driver's ResourceSlices can direct a pod to a device of their choice.",
				Fix:    "install the chart with admission.slices.enabled=true; remove `create` and `update` of resourceslices from the named subjects",
				Verify: "kubectl auth can-i create resourceslices --as=SUBJECT",
			}, needs: append([]string{"clusterroles", "clusterrolebindings"}, policies...), judge: slicePolicy,
		},
		{
			Rule: finding.Rule{
				ID: "K8S-008", Title: "Ensure that the plugin can change claims for its own devices only", Severity: medium,
				Why:    "A stolen token of one node's plugin could change allocations on all nodes.",
				Fix:    "install the chart with admission.claims.enabled=true",
				Verify: "kubectl get validatingadmissionpolicybinding claims." + v1alpha1.DriverName,
			}, needs: policies, judge: func(s *State) []finding.Finding { return s.bound("claims") },
		},
	}
}

// tenantPolicies looks at the objects, and at what the API server does.
func tenantPolicies(s *State) []finding.Finding {
	var found []finding.Finding
	for _, name := range []string{"tenant-pods", "tenant-claims", "tenant-classes", "tenant-pod-classes", "tenant-bindings", "tenant-podgroups"} {
		for _, f := range s.bound(name) {
			if f.State != finding.Pass {
				found = append(found, f)
			}
		}
	}
	return orPass(append(found, s.probed()...), fmt.Sprintf("the policies are bound with Deny, and the API server refused %s", count(max(len(s.Probes)-1, 0), "attack")))
}

// bound judges one policy of the chart and its binding.
func (s *State) bound(name string) []finding.Finding {
	name += "." + v1alpha1.DriverName
	object := "ValidatingAdmissionPolicy " + name
	i := slices.IndexFunc(s.Policies, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
	if i < 0 {
		return []finding.Finding{fail(object, name+" is not there")}
	}
	p := &s.Policies[i]
	if p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy != admissionv1.Fail {
		return []finding.Finding{fail(object, name+" lets requests pass where it can't be evaluated", saw(object+" spec.failurePolicy", string(*p.Spec.FailurePolicy)))}
	}
	if check := p.Status.TypeChecking; check != nil && len(check.ExpressionWarnings) > 0 {
		return []finding.Finding{fail(object, name+" has expressions that don't pass the type check", saw(object+" status.typeChecking", check.ExpressionWarnings[0].Warning))}
	}
	for j := range s.Bindings {
		b := &s.Bindings[j]
		if b.Spec.PolicyName != name || !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			continue
		}
		if p.Spec.ParamKind != nil && b.Spec.ParamRef == nil {
			continue
		}
		return pass(name+" is bound with Deny", saw("ValidatingAdmissionPolicyBinding "+b.Name+" spec.validationActions", fmt.Sprint(b.Spec.ValidationActions)))
	}
	return []finding.Finding{fail(object, "no binding of "+name+" denies")}
}

// probed returns what is wrong by the dry runs.
func (s *State) probed() []finding.Finding {
	if len(s.Probes) == 0 {
		return unknown("whether the policies work was not tried: --probe-namespace is empty")
	}
	var found []finding.Finding
	for _, p := range s.Probes {
		seen := saw("dry run: "+p.About, p.Said)
		switch {
		case p.Impossible != "":
			return []finding.Finding{{State: finding.Unknown, Text: "whether the policies work can't be tried: " + p.Impossible, Evidence: []finding.Evidence{seen}}}
		case p.Untried != "":
			found = append(found, unknown("whether the API server refuses "+p.About+" was not tried: "+p.Untried)...)
		case p.Harmless && p.Refused:
			return []finding.Finding{{State: finding.Unknown, Text: p.Policy + " refuses even " + p.About + ", so the dry runs prove nothing", Evidence: []finding.Evidence{seen}}}
		case !p.Harmless && !p.Refused:
			found = append(found, fail("dry run", "the API server lets pass "+p.About, seen))
		}
	}
	return found
}

// slicePolicy: RBAC knows no driver names, so the policy decides; without it each
// who may write slices is one too many.
func slicePolicy(s *State) []finding.Finding {
	found := s.bound("slices")
	if found[0].State == finding.Pass {
		return found
	}
	for _, verb := range []string{"create", "update", "patch"} {
		for _, g := range s.whoCan(action{verb: verb, group: "resource.k8s.io", resource: "resourceslices"}, "") {
			if g.Subject.Namespace != s.Options.Namespace {
				found = append(found, fail(g.String(), g.String()+" may "+verb+" resourceslices, of any driver"))
			}
		}
	}
	return found
}

package fleet

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func security() []requirement {
	return []requirement{{
		entry: Requirement{
			ID: "secure_accelerator_access", Level: Must,
			Checked: "Each claim with a device is Ready, Isolated and Reset, and its pod runs in a VM under the NRI plugin's check. Admission policies refuse other ways to a device. " +
				"`kata-vfio-audit cluster` passes: its dry runs try these ways.",
			Commands: []Command{
				{"kubectl kata-vfio claims -A", "NAMESPACE CLAIM STATE POD NODE DEVICES VM CONDITIONS ...\n...\nteam-a train-gpu ready ... Ready,Isolated,Reset ...\n..."},
				{
					"kubectl get validatingadmissionpolicybindings -l app.kubernetes.io/name=kata-vfio -o custom-columns=POLICY:.spec.policyName,ACTIONS:.spec.validationActions",
					"POLICY ACTIONS\n...\ntenant-claims.kata-vfio.dev [Deny]\n...\ntenant-pods.kata-vfio.dev [Deny]\n...",
				},
				{
					`kubectl get pods -A -o custom-columns='NAMESPACE:.metadata.namespace,POD:.metadata.name,VM:.spec.runtimeClassName,NRI:.metadata.annotations.required-plugins\.noderesource\.dev'`,
					"NAMESPACE POD VM NRI\n...\nteam-a train kata-gpu [ kata-vfio ]\n...",
				},
				{"kubectl exec -n NAMESPACE POD-WITHOUT-CLAIM -- ls /dev/vfio", "ls: ...: No such file or directory"},
				{"kata-vfio-audit cluster", "✓ ... passes\n..."},
			},
		}, needs: []string{string(Slices), string(Claims), string(Pods), Policies, Bindings}, judge: access,
	}, sandboxing()}
}

// access judges claims, policies, pods and the audit. The first failure is the reason.
func access(s *ConformanceState) observation {
	var seen observation
	for _, look := range []func(*ConformanceState) observation{claims, policies, sandboxes, audit} {
		o := look(s)
		seen.evidence = append(seen.evidence, o.evidence...)
		if seen.reason == "" {
			seen.reason, seen.fix = o.reason, o.fix
		}
	}
	return seen
}

// claims judges the conditions of all claims that have a device.
func claims(s *ConformanceState) observation {
	counts, ready := map[string]int{}, 0
	var other []string
	for _, c := range s.Fleet.ClaimRows() {
		// A claim that is being deleted is about to return its devices: its state no longer says whether it was ready.
		if len(c.Devices) == 0 || c.State == Deleting {
			continue
		}
		counts[strings.Join(c.Conditions(), ",")]++
		if c.State == Ready {
			ready++
			continue
		}
		other = append(other, fmt.Sprintf("%s/%s (%s)", c.Namespace, c.Name, c.State))
	}
	o := observation{evidence: counted(counts, "claim")}
	switch {
	case len(other) > 0:
		o.reason = "claims are not ready, isolated and reset: " + list(other)
		o.fix = "see `kubectl kata-vfio explain CLAIM`; a weakened claim has a DeviceClass that waives isolation or reset"
	case ready == 0:
		o.reason, o.fix = "no claim has a device", "start a pod with a device, such as deploy/examples/gpu-pod.yaml"
	}
	return o
}

// counted lists the number of things for each text, sorted.
func counted(counts map[string]int, thing string) []string {
	var all []string
	for words, n := range counts {
		if words == "" {
			words = "no condition"
		}
		all = append(all, output.Count(n, thing)+": "+words)
	}
	slices.Sort(all)
	return all
}

// tenantPolicies are the chart's policies that close the ways to a device past a claim.
func tenantPolicies() []string {
	return []string{"tenant-pods", "tenant-claims", "tenant-classes", "tenant-pod-classes", "tenant-podgroups", "slices", "claims"}
}

// policies reports whether the chart's policies are bound and deny. The audit tries whether they work.
func policies(s *ConformanceState) observation {
	var denying, lacking []string
	for _, name := range tenantPolicies() {
		name += "." + v1alpha1.DriverName
		if s.Fleet.Cluster.Denies(name) {
			denying = append(denying, name)
		} else {
			lacking = append(lacking, name)
		}
	}
	o := observation{evidence: []string{fmt.Sprintf("%d of %d admission policies deny: %s", len(denying), len(tenantPolicies()), strings.Join(denying, ", "))}}
	if len(lacking) > 0 {
		o.reason = "admission policies do not deny: " + strings.Join(lacking, ", ")
		o.fix = "install the chart with admission.tenants.enabled, admission.slices.enabled, admission.claims.enabled and admission.action=Deny"
	}
	return o
}

// sandboxes judges the pods that have devices: each has a VM, and containerd asks the NRI plugin about its containers.
func sandboxes(s *ConformanceState) observation {
	pods := s.holders(every)
	classes := map[string]int{}
	var bare, unchecked []string
	for _, p := range pods {
		class := "no RuntimeClass"
		if p.Spec.RuntimeClassName != nil && *p.Spec.RuntimeClassName != "" {
			class = "RuntimeClass " + *p.Spec.RuntimeClassName
		} else {
			bare = append(bare, p.Namespace+"/"+p.Name)
		}
		if slices.ContainsFunc(cluster.Containers(&p.Spec), func(c corev1.Container) bool { return !v1alpha1.RequiresPlugin(p.Annotations, c.Name) }) {
			unchecked = append(unchecked, p.Namespace+"/"+p.Name)
		}
		classes[class]++
	}
	o := observation{evidence: append(counted(classes, "running pod"),
		fmt.Sprintf("running pods with devices whose containers need the NRI plugin (annotation %s): %d of %d", v1alpha1.AnnotationRequiredPlugins, len(pods)-len(unchecked), len(pods)))}
	switch {
	case len(pods) == 0:
		o.reason, o.fix = "no pod with a device runs", "start a pod with a device, such as deploy/examples/gpu-pod.yaml"
	case len(bare) > 0:
		o.reason, o.fix = "pods have a device without a RuntimeClass: "+list(bare), "see `kata-vfio-audit cluster`, K8S-002"
	case len(unchecked) > 0:
		o.reason = "containerd does not require the NRI plugin for " + list(unchecked)
		o.fix = "install the chart with admission.requirePlugin.enabled, and create these pods again"
	}
	return o
}

// audit judges by the report of `kata-vfio-audit cluster`.
func audit(s *ConformanceState) observation {
	if s.Audit == nil {
		return observation{
			reason: "the result of `kata-vfio-audit cluster` is not given", fix: "run `kata-vfio-audit cluster -o json > cluster.json`, and pass it with --cluster-report cluster.json",
		}
	}
	states := s.Audit.Summary.States
	o := observation{evidence: []string{fmt.Sprintf("kata-vfio-audit %s of %s at %s: %d pass, %d fail, %d waived, %d unknown", s.Audit.Subject.Version, s.Audit.Subject.Name, s.Audit.Subject.Time,
		states[finding.Pass], states[finding.Fail], states[finding.Waived], states[finding.Unknown]+states[finding.Error])}}
	failed, silent := severe(s.Audit, finding.Fail), severe(s.Audit, finding.Unknown, finding.Error)
	switch {
	case len(failed) > 0:
		o.reason, o.fix = "`kata-vfio-audit cluster` fails: "+list(failed), "see its report; `kata-vfio-audit explain ID` describes a check"
	case len(silent) > 0:
		o.reason = "checks of `kata-vfio-audit cluster` have no answer: " + list(silent)
		o.fix = "see its report: most lack a permission, or the namespace for dry runs (chart: audit.enabled)"
	}
	return o
}

// severe returns the IDs of the checks of severity high or worse that are in one of the states.
func severe(r *finding.Report, states ...finding.State) []string {
	var ids []string
	for i := range r.Findings {
		// Compare sorts the worst first, so that "not after high" is high and critical.
		if f := &r.Findings[i]; slices.Contains(states, f.State) && f.Severity.Compare(rule.High) <= 0 {
			ids = append(ids, f.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

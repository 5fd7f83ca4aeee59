package cluster

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func policyChecks() []Check {
	policies := []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	return []Check{
		{ID: "K8S-001", Needs: policies, Judge: tenantPolicies},
		{ID: "K8S-007", Needs: append([]string{"clusterroles", "clusterrolebindings"}, policies...), Judge: slicePolicy},
		{ID: "K8S-008", Needs: policies, Judge: func(s *State) []finding.Finding { return s.bound("claims") }},
	}
}

// tenantPolicies judges the objects of the policies, and the API server's answers to dry runs.
func tenantPolicies(s *State) []finding.Finding {
	var found []finding.Finding
	for _, name := range []string{
		"tenant-pods", "tenant-claims", "tenant-classes", "tenant-pod-classes", "tenant-bindings", "tenant-podgroups", "tenant-finalizers", "tenant-deletions",
	} {
		for _, f := range s.bound(name) {
			if f.State != finding.Pass {
				found = append(found, f)
			}
		}
	}
	// The harmless dry run is not an attack.
	return orPass(append(found, s.probed()...), fmt.Sprintf("the policies are bound with Deny, and the API server refused %s", output.Count(max(len(s.Probes)-1, 0), "attack")))
}

// bound judges one policy of the chart and its binding.
func (s *State) bound(name string) []finding.Finding {
	name += "." + v1alpha1.DriverName
	object := "ValidatingAdmissionPolicy " + name
	listed := s.Cluster.Policy(name)
	if listed == nil {
		return []finding.Finding{fail(object, name+" is not there")}
	}
	p := listed.Object
	// The API's default is Fail.
	if p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy != admissionv1.Fail {
		return []finding.Finding{fail(object, name+" lets requests pass where it can't be evaluated", saw(object+" spec.failurePolicy", string(*p.Spec.FailurePolicy)))}
	}
	if check := p.Status.TypeChecking; check != nil && len(check.ExpressionWarnings) > 0 {
		return []finding.Finding{fail(object, name+" has expressions that don't pass the type check", saw(object+" status.typeChecking", check.ExpressionWarnings[0].Warning))}
	}
	for _, b := range listed.Denying() {
		if p.Spec.ParamKind != nil && b.Spec.ParamRef == nil {
			continue
		}
		return pass(name+" is bound with Deny", saw("ValidatingAdmissionPolicyBinding "+b.Name+" spec.validationActions", fmt.Sprint(b.Spec.ValidationActions)))
	}
	return []finding.Finding{fail(object, "no binding of "+name+" denies")}
}

// probed returns the faults that the dry runs show.
func (s *State) probed() []finding.Finding {
	if len(s.Probes) == 0 {
		return unknown("whether the policies work was not tried: --probe-namespace is empty")
	}
	var found []finding.Finding
	for _, p := range s.Probes {
		seen := saw("dry run: "+p.About, p.Said)
		switch {
		case p.Harmless && p.Impossible != "":
			return []finding.Finding{{State: finding.Unknown, Text: "whether the policies work can't be tried: " + p.Impossible, Evidence: []rule.Evidence{seen}}}
		case p.Impossible != "":
			found = append(found, finding.Finding{
				State: finding.Unknown, Text: "whether the API server refuses " + p.About + " can't be tried: " + p.Impossible, Evidence: []rule.Evidence{seen},
			})
		case p.Untried != "":
			found = append(found, unknown("whether the API server refuses "+p.About+" was not tried: "+p.Untried)...)
		// Policies that refuse everything would pass all other dry runs.
		case p.Harmless && p.Refused:
			return []finding.Finding{{State: finding.Unknown, Text: p.Policy + " refuses even " + p.About + ", so the dry runs prove nothing", Evidence: []rule.Evidence{seen}}}
		case !p.Harmless && !p.Refused:
			found = append(found, fail("dry run", "the API server lets pass "+p.About, seen))
		}
	}
	return found
}

// slicePolicy checks who may write ResourceSlices in the driver's name. RBAC does not distinguish driver names, so the policy
// decides. Without the policy, RBAC must permit nobody but the plugin to write slices.
func slicePolicy(s *State) []finding.Finding {
	found := s.bound("slices")
	if found[0].State == finding.Pass {
		return found
	}
	for _, verb := range []string{"create", "update", "patch"} {
		for _, g := range s.whoCan(action{verb: verb, group: "resource.k8s.io", resource: "resourceslices"}, "") {
			// The plugin itself writes the driver's slices.
			if g.Subject.Namespace != s.Options.Namespace {
				found = append(found, fail(g.String(), g.String()+" may "+verb+" resourceslices, of any driver"))
			}
		}
	}
	return found
}

// Probe is one dry run: a request that a policy must refuse, or the one request that no policy may refuse. Without the latter, the
// others prove nothing.
type Probe struct {
	// About describes the request.
	About string
	// Harmless marks the request that no policy may refuse.
	Harmless bool
	// Refused is set if an admission policy refused it, and Policy names it.
	Refused bool
	Policy  string
	// Said is the API server's answer; empty if it would have created the object.
	Said string
	// Impossible says why the probe proves nothing, such as a missing namespace or permission.
	Impossible string
	// Untried says why this dry run was not made although the others were.
	Untried string
}

const (
	probeName  = "kata-vfio-audit-probe"
	policyMark = "ValidatingAdmissionPolicy '"
)

// probe makes the dry runs in the probe namespace, which has a tenant's label. A dry run goes through everything in the API server
// except its storage. withheld is a DeviceClass that is not granted to the namespace; empty if there is none.
func probe(ctx context.Context, client Client, o Options, withheld string) []Probe {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod := func(p *corev1.Pod) error {
		p.Spec.SchedulerName = o.SchedulerName
		return client.Create(ctx, o.ProbeNamespace, p, dry)
	}
	claim := func(c *resourceapi.ResourceClaim) error {
		return client.Create(ctx, o.ProbeNamespace, c, dry)
	}
	class := ""
	if len(o.RuntimeClasses) > 0 {
		class = o.RuntimeClasses[0]
	}
	probes := []Probe{{About: "a pod with a claim in a VM", Harmless: true}}
	answers := []error{pod(probePod(class, nil))}
	for _, attack := range []struct {
		about string
		try   func() error
	}{
		{"a pod with a claim and no RuntimeClass", func() error { return pod(probePod("", nil)) }},
		{"a pod with a hostPath volume of /dev/vfio", func() error {
			return pod(probePod(class, func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "vfio", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/vfio"}}}}
			}))
		}},
		{"a pod whose annotation names a CDI device", func() error {
			return pod(probePod(class, func(p *corev1.Pod) {
				p.Annotations = map[string]string{"cdi.k8s.io/probe": v1alpha1.DriverName + "/vfio=probe"}
			}))
		}},
		{"a claim that waives the reset", func() error { return claim(probeParameters(`"kind":"VFIOConfig","reset":"Skip"`)) }},
		{"a claim that trusts its VF", func() error { return claim(probeParameters(`"kind":"VFConfig","trust":true`)) }},
	} {
		probes = append(probes, Probe{About: attack.about})
		answers = append(answers, attack.try())
	}
	probes, answers = append(probes, byClass(withheld, o.ProbeNamespace)), append(answers, nil)
	if withheld != "" {
		answers[len(answers)-1] = claim(probeClaim(withheld))
	}
	for i := range probes {
		probes[i].note(answers[i], o.ProbeNamespace)
	}
	return probes
}

// byClass returns the dry run of a claim whose DeviceClass is not granted to the namespace.
func byClass(withheld, namespace string) Probe {
	if withheld != "" {
		return Probe{About: fmt.Sprintf("a claim by DeviceClass %s, which is not granted to its namespace", withheld)}
	}
	return Probe{
		About:   "a claim by a DeviceClass that is not granted to its namespace",
		Untried: fmt.Sprintf("every DeviceClass of kata-vfio is granted to namespace %s; the chart creates one that is not (audit.probe.enabled)", namespace),
	}
}

// withheld returns the name of a DeviceClass of kata-vfio that is not granted to the probe namespace, empty if there is none.
func (s *State) withheld() string {
	for _, c := range s.Cluster.OurClasses() {
		if !v1alpha1.Grants(c.Annotations, s.Options.ProbeNamespace) {
			return c.Name
		}
	}
	return ""
}

// note interprets the API server's answer. The probe namespace has a quota of zero, so that no object can ever be created
// there. The API server checks the quota after the policies, so its refusal means that they admit the request.
func (p *Probe) note(err error, namespace string) {
	if err == nil {
		return
	}
	p.Said = err.Error()
	_, rest, byPolicy := strings.Cut(p.Said, policyMark)
	switch {
	case byPolicy:
		p.Refused = true
		p.Policy, _, _ = strings.Cut(rest, "'")
	case strings.Contains(p.Said, "exceeded quota"):
	case apierrors.IsNotFound(err):
		p.Impossible = fmt.Sprintf("namespace %s does not exist; the chart creates it (audit.probe.enabled)", namespace)
	case apierrors.IsForbidden(err):
		p.Impossible = "dry runs are not permitted, or another check than a policy refused: " + p.Said
	default:
		p.Impossible = p.Said
	}
}

func probePod(class string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: probeName},
		Spec: corev1.PodSpec{
			// A dry run stores no pod, so nothing pulls the image.
			Containers:                   []corev1.Container{{Name: "probe", Image: "localhost/none"}},
			ResourceClaims:               []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: new(probeName)}},
			AutomountServiceAccountToken: new(false),
		},
	}
	if class != "" {
		p.Spec.RuntimeClassName = &class
	}
	if change != nil {
		change(p)
	}
	return p
}

// probeClaim returns a claim for a device of a DeviceClass.
func probeClaim(class string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: probeName},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "device", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}},
		}},
	}
}

// probeParameters returns a claim with parameters.
func probeParameters(parameters string) *resourceapi.ResourceClaim {
	raw := fmt.Sprintf(`{"apiVersion":%q,%s}`, v1alpha1.APIVersion, parameters)
	c := probeClaim("vf." + v1alpha1.DriverName)
	c.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)}},
	}}}
	return c
}

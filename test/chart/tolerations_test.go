package chart

import (
	"fmt"
	"os"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celpolicy "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// templatedPolicy has the variables and validations of the first policy of a template, without helm: what they include has no branches.
func templatedPolicy(t *testing.T, name string) policy {
	t.Helper()
	root := os.DirFS("../../deploy/helm/kata-vfio")
	text := include(content(t, root, name), definitions(t, root))
	_, text, begins := strings.Cut(text, "\n  variables:\n")
	text, _, ends := strings.Cut(text, "\n---\n")
	if !begins || !ends {
		t.Fatalf("%s has no policy with variables", name)
	}
	text = strings.NewReplacer(
		`{{ include "kata-vfio.driver" . }}`, v1alpha1.DriverName, `{{ include "kata-vfio.namespaces.key" . }}`, v1alpha1.AnnotationNamespaces,
	).Replace("  variables:\n" + text)
	return compiledWith(t, text, celpolicy.OptionalVariableDeclarations{HasParams: true})
}

// TestPolicyForTolerationsOfAllTaints: a request for a class of ours, which the policy knows by the class, tolerates taints by their keys
// only. What a request for another driver's class tolerates is not ours to judge.
func TestPolicyForTolerationsOfAllTaints(t *testing.T) {
	const refused = "(TolerationNotAllowed)"
	p := templatedPolicy(t, "templates/admission/class-tolerations.yaml")
	all, drain := resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists}, resourcev1.DeviceToleration{Key: "kata-vfio.dev/drain", Operator: "Exists"}
	selects := func(expression string) resourcev1.DeviceClassSpec {
		return resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}}
	}
	sets := resourcev1.DeviceClassSpec{Config: []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
		Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: v1alpha1.DriverName},
	}}}}
	granted := map[string]string{v1alpha1.AnnotationNamespaces: "team-a"}
	for name, c := range map[string]struct {
		class, asked string
		annotations  map[string]string
		spec         resourcev1.DeviceClassSpec
		toleration   resourcev1.DeviceToleration
		want         string
	}{
		"an own class, by its grant":     {"vf-team-a.example.com", "", granted, resourcev1.DeviceClassSpec{}, all, refused},
		"an own class, by its selector":  {"vf-team-a.example.com", "", nil, selects("device.driver == 'kata-vfio.dev'"), all, refused},
		"an own class, by parameters":    {"vf-team-a.example.com", "", nil, sets, all, refused},
		"the chart's class":              {ourClass, "", nil, resourcev1.DeviceClassSpec{}, all, refused},
		"a taint by its key":             {"vf-team-a.example.com", "", granted, resourcev1.DeviceClassSpec{}, drain, ""},
		"another driver's class":         {"gpu.nvidia.com", "", nil, selects("device.driver == 'gpu.nvidia.com'"), all, ""},
		"ours, which the claim does not": {"vf-team-a.example.com", "gpu.nvidia.com", granted, resourcev1.DeviceClassSpec{}, all, ""},
	} {
		p.parameter = &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: c.class, Annotations: c.annotations}, Spec: c.spec}
		if c.asked == "" {
			c.asked = c.class
		}
		for _, o := range tolerating(c.asked, drain, c.toleration) {
			wantRefusal(t, fmt.Sprintf("%s, %T", name, o), p.refusals(t, o), c.want)
		}
		for _, o := range append(tolerating(c.asked), &resourcev1.ResourceClaim{}) {
			wantRefusal(t, fmt.Sprintf("%s, %T without tolerations", name, o), p.refusals(t, o), "")
		}
	}
}

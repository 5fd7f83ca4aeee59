package fleet_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// twinRule is the rule of kata-vfio-controller on the GPU's device of kata-vfio, because of a claim of the other driver; without a claim,
// because the other driver does not publish the GPU.
func twinRule(claim string) resourceapi.DeviceTaintRule {
	return resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "kata-vfio-twin-1", Annotations: map[string]string{v1alpha1.AnnotationTwinClaim: claim}},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: new(driver), Pool: new("n1"), Device: new(gpu)},
			Taint:          taint(v1alpha1.TaintTwin, v1alpha1.TwinTheirs),
		},
	}
}

// TestGPUOfTheOtherDriverIsNoProblem while only that driver's claim has it: containers use the GPUs of a shared pool all the time. It is one
// if a claim of kata-vfio has the GPU, too, or if the other driver does not publish it.
func TestGPUOfTheOtherDriverIsNoProblem(t *testing.T) {
	without := resourceapi.Device{Name: gpu}
	shared := without
	shared.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"sharedWith": {StringValue: new("gpu.example.com")}}
	const lent, unpublished = "A claim has the other driver's device for the shared GPU", "The other DRA driver does not publish the shared GPU"
	for name, tt := range map[string]struct {
		device        resourceapi.Device
		claims        []resourceapi.ResourceClaim
		rule          resourceapi.DeviceTaintRule
		state, mark   string
		health, wrong int
		said, todo    string // what the moment of the rule says, and what is to be done about it; empty if nothing
	}{
		"a container has it":           {shared, nil, twinRule("uid/1"), "withheld: gpu.example.com has the GPU", "◌ ", 0, 0, lent, ""},
		"a node of an earlier version": {without, nil, twinRule("uid/1"), "withheld: the other driver has the GPU", "◌ ", 0, 0, lent, ""},
		"it is dead, too":              {tainted(shared, taint(driver+"/dead", "")), nil, twinRule("uid/1"), "tainted: dead", "✗ ", 1, 1, lent, "check its power"},
		"a VM has it, too":             {shared, claims(holds("n1", gpu)), twinRule("uid/1"), "claimed t1/c, tainted: twin-in-use", "✗ ", 0, 1, lent, "wait: the scheduler"},
		"it is not published":          {shared, nil, twinRule(""), "tainted: twin-in-use", "✗ ", 1, 1, unpublished, "repair that driver on the node"},
	} {
		t.Run(name, func(t *testing.T) {
			s := listed{Slices: []resourceapi.ResourceSlice{slice("n1", tt.device)}, Claims: tt.claims, Rules: []resourceapi.DeviceTaintRule{tt.rule}}
			d := s.state().Devices()[0]
			if d.State() != tt.state || len(d.Health) != tt.health {
				t.Errorf("it is %s, with health %q; want %s, with %d words", d.State(), d.Health, tt.state, tt.health)
			}
			var tree strings.Builder
			err := output.WriteTree(&tree, []output.Branch{fleet.Tree("n1", s.state().Devices())}, 0, false)
			if err != nil || !strings.Contains(tree.String(), tt.mark+gpu) {
				t.Errorf("%v; the tree lacks the mark %q:\n%s", err, tt.mark, tree.String())
			}
			wrong := 0
			for _, p := range s.state().Status().Problems {
				if strings.HasPrefix(p.Subject, "device ") {
					wrong++
				}
			}
			if wrong != tt.wrong {
				t.Errorf("the status has %d problems of the device, want %d", wrong, tt.wrong)
			}
			wantRuleSaid(t, &s, tt.said, tt.todo)
		})
	}
}

// wantRuleSaid explains the device: the moment of its rule has a text, and nothing is to be done about the device, or something that has
// a text in it. The rule is never to be deleted.
func wantRuleSaid(t *testing.T, s *listed, said, todo string) {
	t.Helper()
	x, err := s.state().ExplainDevice("n1", gpu, texts(t))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range x.Moments {
		found = found || m.What == "taint twin-in-use=Theirs" && m.Text == said+", so DeviceTaintRule kata-vfio-twin-1 keeps claims away"
		if strings.Contains(m.Fix, "devicetaintrule") {
			t.Errorf("the fix of %s is %q", m.What, m.Fix)
		}
	}
	if !found {
		t.Errorf("no moment says %q: %+v", said, x.Moments)
	}
	if all := strings.Join(x.Todo, "\n"); (all == "") != (todo == "") || !strings.Contains(all, todo) {
		t.Errorf("to do is %q, want %q", all, todo)
	}
}

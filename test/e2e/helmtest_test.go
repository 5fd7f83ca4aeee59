//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// TestHelmTestIsAdmitted: the API server with the chart's policies takes the pod of `helm test` in the release's namespace, also where that
// enforces Pod Security's strictest level; only helm's test creates it.
func TestHelmTestIsAdmitted(t *testing.T) {
	p := installed(t)
	r := render(t, "test: {enabled: true}", "--show-only", "templates/tests/pod.yaml")
	if len(r.objects) != 2 {
		t.Fatalf("%d objects, want a ResourceClaimTemplate and a pod:\n%s", len(r.objects), r.text)
	}
	for _, o := range r.objects {
		if hook := o.GetAnnotations()["helm.sh/hook"]; hook != "test" {
			t.Errorf("%s %s has the hook %q, want test", o.GetKind(), o.GetName(), hook)
		}
	}
	ns := namespace(t, p)
	if _, err := p.Kubectl(t.Context(), "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted"); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{system, ns} {
		text := strings.ReplaceAll(r.text, "namespace: "+system, "namespace: "+to)
		out, err := p.KubectlInput(t.Context(), strings.NewReader(text), "create", "--dry-run=server", "--validate=strict", "-f", "-")
		if err != nil || !strings.Contains(string(out), "pod/kata-vfio-test created") {
			t.Errorf("in namespace %s: %s, %v", to, out, err)
		}
	}
	if text, err := template(t, ""); err != nil || strings.Contains(text, "helm.sh/hook") {
		t.Errorf("by default, the chart has hooks (%v)", err)
	}
}

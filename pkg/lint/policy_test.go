package lint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/lint"
)

// policies reads policies from a text.
func policies(t *testing.T, text string) *lint.Policies {
	t.Helper()
	p, err := lint.ParsePolicies([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPoliciesAreReadWhole from each form of a stream or a list that kubectl takes; a document that YAML readers drop is an error.
func TestPoliciesAreReadWhole(t *testing.T) {
	const policy = `{"metadata": {"name": "a.kata-vfio.dev"}}`
	const full = `{"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "b.kata-vfio.dev"}}`
	for name, text := range map[string]string{
		"dividers with comments": "--- # one\n" + full + "\n--- # another\n" + full,
		"a JSON stream":          full + "\n" + full,
		"a list of the API":      `{"kind": "ValidatingAdmissionPolicyList", "items": [` + policy + ", " + policy + "]}",
	} {
		if got := policies(t, text).Names(); len(got) != 2 {
			t.Errorf("%s: got the policies %q, want 2", name, got)
		}
	}
	for _, text := range []string{full + "\n...\n" + full, "a: b\n--- " + full} {
		if _, err := lint.ParsePolicies([]byte(text)); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: got %v, want an error with the line", text, err)
		}
	}
}

// TestOnlyBindingsThatDenyRefuse: the chart's admission.action may be Warn or Audit.
func TestOnlyBindingsThatDenyRefuse(t *testing.T) {
	text := string(read(t, "policies.yaml"))
	for actions, want := range map[string]int{"  - Warn\n  - Audit\n": 0, "  - Audit\n": 0, "  - Audit\n  - Deny\n": 1} {
		l := &lint.Linter{Policies: policies(t, strings.ReplaceAll(text, "validationActions:\n  - Deny\n", "validationActions:\n"+actions))}
		l.Add("pod.yaml", []byte(badPod))
		if got := said(report(t, l)); len(got) != want {
			t.Errorf("actions %q: got %q, want %d", actions, got, want)
		}
	}
}

// TestPolicyThatFailsIsAProblem, also for an object with another problem that has no code.
func TestPolicyThatFailsIsAProblem(t *testing.T) {
	const policy = `
kind: ValidatingAdmissionPolicy
metadata: {name: fails.kata-vfio.dev}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  validations: [{expression: "object.spec.nodeName == 'worker-1'"}]
---
kind: ValidatingAdmissionPolicyBinding
metadata: {name: fails.kata-vfio.dev}
spec: {policyName: fails.kata-vfio.dev, validationActions: [Deny]}
`
	l := &lint.Linter{Policies: policies(t, policy)}
	l.Add("pod.yaml", []byte(strings.Replace(goodPod, `"containers"`, `"container": [], "containers"`, 1)))
	got := said(report(t, l))
	for _, want := range []string{"no such field", "policy fails.kata-vfio.dev can't be evaluated"} {
		if !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("got %q, want one with %q", got, want)
		}
	}
}

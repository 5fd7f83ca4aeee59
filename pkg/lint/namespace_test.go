package lint_test

import (
	"slices"
	"strings"
	"testing"
)

// TestNamespacesOfObjects: an object is judged in its own. If all are to be in one, another one is a problem, as it is for kubectl.
func TestNamespacesOfObjects(t *testing.T) {
	const files = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.kata-vfio.dev, namespace: none, annotations: {kata-vfio.dev/namespaces: team-a}}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: gpu
  namespace: %
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev}}]}}}
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: %}
  spec:
    template:
      metadata: {namespace: template}
      spec: {containers: []}
`
	const granted, other = "12 ResourceClaimTemplate/gpu ClassNotGranted", "the object is in namespace team-b, and namespace team-a was asked about"
	for _, c := range []struct {
		name, own string
		one       bool
		want      []string
	}{
		{"team-b", "team-a", false, nil},
		{"team-a", "team-b", false, []string{granted}},
		{"team-a", "team-a", true, nil},
		{"team-a", `""`, true, nil},
		{"team-a", `""`, false, nil},
		{"team-a", "team-b", true, []string{"11 ResourceClaimTemplate/gpu " + other, "19 Deployment/web " + other}},
	} {
		l := linter(t)
		l.NamespaceName, l.OneNamespace = c.name, c.one
		l.Add("files.yaml", []byte(strings.ReplaceAll(files, "%", c.own)))
		r := report(t, l)
		got := said(r)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s in %s (only this one: %v): got %q, want %q", c.own, c.name, c.one, got, c.want)
		}
		if c.one && len(got) > 0 && (r.Problems[0].Field != "metadata.namespace" || !strings.Contains(r.Problems[0].Fix, "-n team-b")) {
			t.Errorf("got %+v, want the field and how to ask about the other namespace", r.Problems[0])
		}
	}
}

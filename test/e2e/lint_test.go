//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/golden"
)

// TestLintHasThePoliciesOfTheChart: `kubectl kata-vfio lint` asks those policies that are about what tenants create, as helm renders them
// with the chart's own values.
func TestLintHasThePoliciesOfTheChart(t *testing.T) {
	about := []string{"parameters", "pods", "tenant-claims", "tenant-classes", "tenant-pod-classes", "tenant-podgroups", "tenant-pods"}
	var documents []string
	for _, o := range render(t, "{}").objects {
		if !strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") || !slices.Contains(about, strings.TrimSuffix(o.GetName(), "."+driver)) {
			continue
		}
		o.SetLabels(nil)
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(text))
	}
	if want := 2 * len(about); len(documents) != want {
		t.Errorf("the chart has %d policies and bindings of these, want %d", len(documents), want)
	}
	golden.Compare(t, "../../../pkg/lint/policies.yaml", strings.Join(documents, "---\n"))
}

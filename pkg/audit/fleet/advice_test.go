package fleet

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// constants are the values of those that a source declares with a prefix before their quotes.
func constants(t *testing.T, file, declared string) []string {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, m := range regexp.MustCompile(declared+`"([^"]+)"`).FindAllSubmatch(source, -1) {
		values = append(values, string(m[1]))
	}
	if len(values) < 5 {
		t.Fatalf("%s declares %v", file, values)
	}
	return values
}

// withCodes is an explanation that knows the codes and no rule.
func withCodes(t *testing.T) *explaining {
	t.Helper()
	codes, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	return (&State{Cluster: &cluster.Cluster{}}).explaining(Texts{Codes: codes})
}

// TestAdviceIsTheTextOfTheCode: a refusal has one fix in all outputs. Kubernetes' own reasons have fixes of their own.
func TestAdviceIsTheTextOfTheCode(t *testing.T) {
	e := withCodes(t)
	for _, text := range e.texts {
		if got := e.trouble(Moment{}, string(text.Code)).Fix; got != text.Fix {
			t.Errorf("%s: got %q, want %q", text.Code, got, text.Fix)
		}
	}
	for reason, want := range map[string]string{"FailedScheduling": "kubectl kata-vfio classes", "SchedulingGated": "removes the pod's gate", "FailedPrepareDynamicResources": "condition Ready", "BindingConditionsPending": "kata-vfio-controller"} {
		if got := e.trouble(Moment{}, reason).Fix; !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want it to name %q", reason, got, want)
		}
	}
	if got := e.trouble(Moment{}, "Pulled").Fix; got != "" {
		t.Errorf("Pulled: got %q, want no advice", got)
	}
}

// TestEachTaintHasAdvice: the taints of this version by the code in their value or by their key, and a newer plugin's in general.
func TestEachTaintHasAdvice(t *testing.T) {
	keys := constants(t, "../../publish/taints.go", `v1alpha1.DriverName \+ `)
	if !slices.Contains(keys, "/drain") {
		t.Errorf("the taints are %v", keys)
	}
	e := withCodes(t)
	values := map[string]rule.Code{publish.TaintNotPreparable: rule.BARReserved, publish.TaintWithdrawn: rule.Gone}
	for _, key := range keys {
		taint := resourceapi.DeviceTaint{Key: v1alpha1.DriverName + key}
		taint.Value = string(values[taint.Key])
		text, fix := e.aboutTaint(taint)
		if text == "" || fix == "" || strings.HasPrefix(text, "the plugin's taint keeps claims") {
			t.Errorf("%s: got %q, %q; want what it means and what to do", key, text, fix)
		}
	}
	text, fix := e.aboutTaint(resourceapi.DeviceTaint{Key: v1alpha1.DriverName + "/of-tomorrow", Value: "Tomorrow"})
	if !strings.HasPrefix(text, "the plugin's taint keeps claims") || fix == "" {
		t.Errorf("a taint of a newer plugin: got %q, %q", text, fix)
	}
}

// TestTaintIsExplainedByItsValue: the code in the value says more than the key.
func TestTaintIsExplainedByItsValue(t *testing.T) {
	for _, tt := range []struct {
		name, key, value string
		text, fix        string
	}{
		{"a node without room", publish.TaintNodeNotReady, "DiskFull", "no room", "free space"},
		{"a device without a group", publish.TaintNotIsolated, "NoIOMMUGroup", "no IOMMU group", "VT-d"},
		{"a reason of a newer plugin", publish.TaintNotIsolated, "Tomorrow", "not isolated", "kata-vfio-audit devices"},
		{"a stage whose profile is named like a code", v1alpha1.TaintSanitizing, "Gone", "sanitizing stage", "kata-vfio-plugin status"},
		{"an exclusive domain", v1alpha1.TaintTenant, "0123456789abcdef", "exclusive domain", "wait until the last claim of the other tenant"},
		{"an exclusive domain of several tenants", v1alpha1.TaintTenant, "several", "exclusive domain", "wait until the last claim of the other tenant"},
		{"a drain that waits", publish.TaintDrain, "Draining", "is taking the device out of use", "wait for the claim"},
		{"a drain that is done", publish.TaintDrain, "Drained", "took the device out of use", "undrain"},
		{"a pool of an earlier version, for which no claim must end", publish.TaintWithdrawn, "Renamed", "pool gets the name", "wait half an hour"},
		{"a device that is gone", publish.TaintWithdrawn, "Gone", "no longer exists", "end the claim"},
	} {
		text, fix := withCodes(t).aboutTaint(resourceapi.DeviceTaint{Key: tt.key, Value: tt.value})
		if !strings.Contains(text, tt.text) || !strings.Contains(fix, tt.fix) {
			t.Errorf("%s: got %q, %q; want %q, %q", tt.name, text, fix, tt.text, tt.fix)
		}
	}
}

// TestSayingsAreInTheRunbook: a text that explain knows is one that people find in the runbook, too.
func TestSayingsAreInTheRunbook(t *testing.T) {
	runbook, err := os.ReadFile("../../../deploy/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sayings() {
		if !strings.Contains(string(runbook), s.part) {
			t.Errorf("%q is not in the runbook", s.part)
		}
	}
}

package fleet

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
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

// TestEachReasonHasAdvice: each reason why a claim is refused says what to do.
func TestEachReasonHasAdvice(t *testing.T) {
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		shown := slices.Contains(text.SeenIn, rule.InCondition) || slices.Contains(text.SeenIn, rule.InEvent)
		refused := slices.ContainsFunc(text.Enforced, func(g rule.Gate) bool { return g != rule.AtPublish })
		if shown && refused && advice(string(text.Code)) == "" {
			t.Errorf("%s has no advice", text.Code)
		}
	}
}

// TestEachTaintHasAdvice of its own, one of a newer plugin a general one.
func TestEachTaintHasAdvice(t *testing.T) {
	keys := append(constants(t, "../../publish/taints.go", `v1alpha1.DriverName \+ `), "/of-tomorrow")
	for _, key := range keys {
		text, fix := aboutTaint(resourceapi.DeviceTaint{Key: v1alpha1.DriverName + key, Value: "IOM-003"}, nil)
		general := strings.HasPrefix(text, "the plugin's taint keeps claims")
		if text == "" || fix == "" || general != (key == "/of-tomorrow") {
			t.Errorf("%s: %q, %q", key, text, fix)
		}
	}
	if !slices.Contains(keys, "/drain") {
		t.Errorf("the taints are %v", keys)
	}
}

// TestRenamedDeviceIsNotTheNodesFault: the taint of an upgrade ends by itself, and no claim is to be ended because of it.
func TestRenamedDeviceIsNotTheNodesFault(t *testing.T) {
	text, fix := aboutTaint(resourceapi.DeviceTaint{Key: publish.TaintWithdrawn, Value: string(rule.Renamed)}, nil)
	if !strings.Contains(text, "pool gets the name") || !strings.Contains(fix, "wait half an hour") || strings.Contains(fix, "end the claim") {
		t.Errorf("%s; %s", text, fix)
	}
	if _, fix := aboutTaint(resourceapi.DeviceTaint{Key: publish.TaintWithdrawn, Value: "Gone"}, nil); !strings.Contains(fix, "end the claim") {
		t.Errorf("a device that is gone: %s", fix)
	}
}

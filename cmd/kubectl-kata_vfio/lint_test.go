package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/lint"
)

const (
	goodPod = "../../deploy/examples/gpu-pod.yaml"
	// chartPolicies are those that lint asks without a cluster.
	chartPolicies = "../../pkg/lint/policies.yaml"
)

// badPod is the example without its RuntimeClass, in a file.
func badPod(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(goodPod)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(name, []byte(strings.Replace(string(text), "  runtimeClassName: kata-gpu\n", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestLintNeedsNoCluster, and its exit code says whether anything would be refused.
func TestLintNeedsNoCluster(t *testing.T) {
	bad := badPod(t)
	stdout, stderr, code := ask(t, client(nil), "lint", "-f", goodPod)
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "2 objects checked, 0 problems") {
		t.Errorf("a good pod: exit code %d, stderr %q:\n%s", code, stderr, stdout)
	}
	stdout, stderr, code = ask(t, client(nil), "lint", "-f", bad)
	if code != exitFindings || !strings.Contains(stderr, "1 problem") {
		t.Errorf("a bad pod: exit code %d, want %d: %s", code, exitFindings, stderr)
	}
	if !strings.Contains(stdout, "pod.yaml:24: Pod/gpu") || !strings.Contains(stdout, "→ set `runtimeClassName: kata-gpu`") {
		t.Errorf("got no line of the fault, or no fix:\n%s", stdout)
	}
	stdout, _, code = ask(t, client(nil), "lint", "-f", filepath.Dir(bad), "-f", goodPod, "-o", "json")
	if got := documentOf[lint.Report](t, stdout); code != exitFindings || got.Checked != 4 || len(got.Problems) != 1 || got.Problems[0].Code != "NoRuntimeClass" || got.Problems[0].Line != 24 {
		t.Errorf("a directory and a file: exit code %d, got %+v", code, got)
	}
}

// TestLintOfNothingFails: a pipeline whose renderer printed nothing does not pass.
func TestLintOfNothingFails(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "comments": "# Pod\n\n# Service\n", "dividers": "---\n# a\n---\n", "null": "null\n"} {
		file := filepath.Join(t.TempDir(), name+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, of := range []string{file, filepath.Dir(file)} {
			stdout, stderr, code := ask(t, client(nil), "lint", "-f", of)
			if want := of + " has nothing to check"; code != 2 || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "want manifests in YAML or JSON") {
				t.Errorf("%s: got exit code %d and %q, want %d and %q:\n%s", of, code, stderr, 2, want, stdout)
			}
		}
		// A directory may have such a file beside others.
		pod, err := os.ReadFile(goodPod)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), "pod.yaml"), pod, 0o600); err != nil {
			t.Fatal(err)
		}
		if stdout, stderr, code := ask(t, client(nil), "lint", "-f", filepath.Dir(file)); code != 0 || !strings.HasPrefix(stdout, "2 objects checked") {
			t.Errorf("%s beside a pod: got exit code %d, %q:\n%s", name, code, stderr, stdout)
		}
	}
	for _, text := range []string{"{}\n", "hello\n", "kind: Pod\n"} {
		file := filepath.Join(t.TempDir(), "other.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if stdout, _, code := ask(t, client(nil), "lint", "-f", file); code != exitFindings || !strings.Contains(stdout, "no Kubernetes object") {
			t.Errorf("%q: got exit code %d, want %d:\n%s", text, code, exitFindings, stdout)
		}
	}
}

// TestLintAsSARIF has each problem at its line, with a rule, and is valid; a run without problems has a list of results.
func TestLintAsSARIF(t *testing.T) {
	bad := badPod(t)
	text := filepath.Join(t.TempDir(), "a b.yaml")
	const misspelled = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [], contaners: []}\n"
	if err := os.WriteFile(text, []byte("words: \x1b[2J\n---\n"+misspelled), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		rules []string
		lines []int
	}{
		{[]string{"-f", bad, "-f", text}, []string{"NoRuntimeClass", "Unreadable", "Misfit"}, []int{24, 1, 6}},
		{[]string{"-f", goodPod}, nil, nil},
	} {
		stdout, stderr, _ := ask(t, client(nil), append([]string{"lint", "-o", "sarif"}, c.args...)...)
		log, err := sarif.FromString(stdout)
		if err != nil {
			t.Fatalf("%v: %s\n%s", err, stderr, stdout)
		}
		if err := log.Validate(); err != nil || !strings.Contains(stdout, `"results": [`) {
			t.Errorf("%v: %v\n%s", c.args, err, stdout)
		}
		var rules []string
		var lines []int
		for _, r := range log.Runs[0].Results {
			rules = append(rules, *log.Runs[0].Tool.Driver.Rules[r.RuleIndex].ID)
			lines = append(lines, *r.Locations[0].PhysicalLocation.Region.StartLine)
		}
		if !slices.Equal(rules, c.rules) || !slices.Equal(lines, c.lines) {
			t.Errorf("%v: got rules %v in lines %v, want %v in %v:\n%s", c.args, rules, lines, c.rules, c.lines, stdout)
		}
	}
}

// TestLintsFilesAreNoLinks elsewhere: a name with a colon is no URI with a scheme.
func TestLintsFilesAreNoLinks(t *testing.T) {
	for file, want := range map[string]string{"javascript:x.yaml": "./javascript:x.yaml", "a b/c:d.yaml": "a%20b/c:d.yaml", "./pod.yaml": "pod.yaml"} {
		at := lintResult(&lint.Problem{File: file}).Locations[0].PhysicalLocation.ArtifactLocation
		if got := *at.URI; got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}

// TestLintRefusesWhatItCantRead with the exit code of a wrong command line.
func TestLintRefusesWhatItCantRead(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no file":           {nil, "-f is missing"},
		"a missing file":    {[]string{"-f", filepath.Join(empty, "a.yaml")}, "no such file"},
		"an empty folder":   {[]string{"-f", empty}, "has no .yaml"},
		"no policies":       {[]string{"-f", goodPod, "--policies", goodPod}, "no ValidatingAdmissionPolicy"},
		"no such policies":  {[]string{"-f", goodPod, "--policies", filepath.Join(empty, "p.yaml")}, "read the policies"},
		"an unknown format": {[]string{"-f", goodPod, "-o", "wide"}, "wide"},
	} {
		if _, stderr, code := ask(t, client(nil), append([]string{"lint"}, c.args...)...); code != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d and %q, want 2 and %q", name, code, stderr, c.want)
		}
	}
}

// TestLintKnowsTheNamespace by the flag, for a DeviceClass among the files.
func TestLintKnowsTheNamespace(t *testing.T) {
	name := filepath.Join(t.TempDir(), "class.yaml")
	class := "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.kata-vfio.dev, annotations: {kata-vfio.dev/namespaces: team-b}}\nspec: {}\n"
	if err := os.WriteFile(name, []byte(class), 0o600); err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]int{"team-a": exitFindings, "team-b": 0} {
		if stdout, _, code := ask(t, client(nil), "lint", "-n", namespace, "-f", goodPod, "-f", name); code != want {
			t.Errorf("namespace %s: exit code %d, want %d:\n%s", namespace, code, want, stdout)
		}
	}
	// Without the flag, the pod's own namespace counts.
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(pod, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: gpu, namespace: team-b}\nspec: {containers: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := client(append(admissionObjects(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}))
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "0 problems"}, {[]string{"-n", "team-b"}, "0 problems"}, {[]string{"-n", "team-a"}, "by `-n team-b`"}, {[]string{"--cluster"}, "by `-n team-b`"},
	} {
		if stdout, stderr, _ := ask(t, cluster, append([]string{"lint", "-f", pod}, c.args...)...); !strings.Contains(stdout, c.want) {
			t.Errorf("%q: got %q, want %q:\n%s", c.args, stdout, c.want, stderr)
		}
	}
}

// TestLintAsksTheCluster: its policies, its classes, and whether the namespace is a tenant's.
func TestLintAsksTheCluster(t *testing.T) {
	bad := badPod(t)
	policies := admissionObjects(t)
	namespace := func(labels map[string]string) runtime.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid-a", Labels: labels}}
	}
	tenant := map[string]string{"kata-vfio.dev/tenant": ""}
	for name, c := range map[string]struct {
		objects []runtime.Object
		want    []string
	}{
		"a tenant's namespace":     {slices.Concat(policies, []runtime.Object{namespace(tenant)}), []string{"ClassUnknown", "NoRuntimeClass"}},
		"a namespace of no tenant": {slices.Concat(policies, []runtime.Object{namespace(nil)}), []string{"ClassUnknown"}},
		"no policies":              {[]runtime.Object{namespace(tenant)}, []string{"ClassUnknown"}},
	} {
		stdout, _, code := ask(t, client(c.objects), "lint", "--cluster", "-f", bad, "-o", "json")
		var got []string
		for _, p := range documentOf[lint.Report](t, stdout).Problems {
			got = append(got, string(p.Code))
		}
		if code != exitFindings || !slices.Equal(got, c.want) {
			t.Errorf("%s: exit code %d and %q, want %d and %q", name, code, got, exitFindings, c.want)
		}
	}
}

// admissionObjects are the chart's policies as a cluster has them.
func admissionObjects(t *testing.T) (objects []runtime.Object) {
	t.Helper()
	text, err := os.ReadFile(chartPolicies)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var object runtime.Object = &admissionv1.ValidatingAdmissionPolicy{}
		if strings.Contains(part, "kind: ValidatingAdmissionPolicyBinding") {
			object = &admissionv1.ValidatingAdmissionPolicyBinding{}
		}
		if err := yaml.Unmarshal([]byte(part), object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

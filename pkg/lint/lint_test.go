package lint_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/lint"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

const examples = "../../deploy/examples"

// linter asks the chart's policies.
func linter(t *testing.T) *lint.Linter {
	t.Helper()
	p, err := lint.OfChart()
	if err != nil {
		t.Fatal(err)
	}
	return &lint.Linter{Policies: p}
}

func report(t *testing.T, l *lint.Linter) *lint.Report {
	t.Helper()
	r, err := l.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestExamplesPass: the examples are what tenants begin with.
func TestExamplesPass(t *testing.T) {
	others := map[string]string{
		"shared-pool/container-pod.yaml": "a pod in a container, for a namespace that is no tenant's",
		"mixed-fleet/values.yaml":        "values of the chart",
		"partition/values.yaml":          "values of the chart",
		"shared-pool/values.yaml":        "values of the chart",
	}
	l, files := linter(t), 0
	err := filepath.WalkDir(examples, func(name string, d fs.DirEntry, err error) error {
		short := filepath.ToSlash(strings.TrimPrefix(name, examples+"/"))
		if err != nil || d.IsDir() || filepath.Ext(name) != ".yaml" || others[short] != "" {
			return err
		}
		files++
		l.Add(short, read(t, name))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := report(t, l)
	for _, p := range r.Problems {
		t.Errorf("got a problem, want none: %+v", p)
	}
	if files < 18 || r.Checked < files+10 {
		t.Errorf("%d objects of %d files were checked, want as many of each as there are", r.Checked, files)
	}
}

// TestFaultsAreFound, each with its line, field and fix.
func TestFaultsAreFound(t *testing.T) {
	l := linter(t)
	l.Add("faults.yaml", read(t, "testdata/faults.yaml"))
	r := report(t, l)
	var got strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintf(&got, "%s:%d document %d %s %s\n  %s: %s\n", p.File, p.Line, p.Document, p.Object, p.Field, p.Code, p.Text)
		if p.Fix == "" && p.Code != "" {
			t.Errorf("%s %s has no fix", p.Object, p.Code)
		}
	}
	fmt.Fprintf(&got, "checked %d, passed over %v\n", r.Checked, r.PassedOver)
	golden.Compare(t, "faults.txt", got.String())
}

// TestEachRefusalOfThePoliciesIsPlanted: each code of the policies, but those that only an update meets.
func TestEachRefusalOfThePoliciesIsPlanted(t *testing.T) {
	l := linter(t)
	l.Add("faults.yaml", read(t, "testdata/faults.yaml"))
	found := map[rule.Code]bool{}
	for _, p := range report(t, l).Problems {
		found[p.Code] = true
	}
	all := regexp.MustCompile(`\(([A-Z][a-z]+[A-Z]\w+)\)`).FindAllStringSubmatch(string(read(t, "policies.yaml")), -1)
	if len(all) < 15 {
		t.Fatalf("the policies have %d codes, want 15 or more", len(all))
	}
	for _, c := range all {
		if !found[rule.Code(c[1])] {
			t.Errorf("no planted fault is refused as %s", c[1])
		}
	}
}

// TestNamespaceOfNoTenant: fewer policies are about it.
func TestNamespaceOfNoTenant(t *testing.T) {
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: agent}
spec:
  runtimeClassName: kata-gpu
  hostNetwork: true
  containers: [{name: main, image: example.com/agent:1}]
  volumes:
  - name: logs
    hostPath: {path: /var/log}
  - name: vfio
    hostPath: {path: /dev/vfio}
`
	for _, c := range []struct {
		labels map[string]string
		want   []string
	}{
		{nil, []string{"MountNotAllowed spec.volumes[1].hostPath.path"}},
		{map[string]string{"kata-vfio.dev/tenant": ""}, []string{"HostAccessNotAllowed spec.hostNetwork", "MountNotAllowed spec.volumes"}},
	} {
		l := linter(t)
		l.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "agents", Labels: c.labels}}
		l.Add("pod.yaml", []byte(pod))
		var got []string
		for _, p := range report(t, l).Problems {
			got = append(got, string(p.Code)+" "+p.Field)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("labels %v: got %q, want %q", c.labels, got, c.want)
		}
	}
}

// TestAntiAffinityStaysInItsNamespace: the scheduler would keep the plugin's pods off a node because of a tenant's pod. A pod with
// thousands of terms costs the policy no more than the API server allows.
func TestAntiAffinityStaysInItsNamespace(t *testing.T) {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: apart}, spec: {containers: [{name: main, image: example.com/main:1}],
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [%s]}}}}`
	const own = "{topologyKey: zone, namespaces: [team-a]}"
	const refused = "AffinityNotAllowed spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	for terms, want := range map[string]string{
		"": "", own: "", "{topologyKey: zone}": "", "{topologyKey: zone, namespaces: []}": "",
		"{topologyKey: zone, namespaceSelector: {}}":                    refused + "[0].namespaceSelector",
		own + ", {topologyKey: zone, namespaces: [kata-vfio-system]}":   refused + "[1].namespaces[0]",
		"{topologyKey: zone, namespaces: [team-a, kata-vfio-system]}":   refused + "[0].namespaces[1]",
		own + ", {namespaces: [team-a], namespaceSelector: {}}, " + own: refused + "[1].namespaceSelector",
		strings.Repeat(own+", ", 4000):                                  "",
	} {
		l := linter(t)
		l.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{"kata-vfio.dev/tenant": ""}}}
		l.Add("pod.yaml", fmt.Appendf(nil, pod, terms))
		got := ""
		for _, p := range report(t, l).Problems {
			got += string(p.Code) + " " + p.Field
		}
		if got != want {
			t.Errorf("%.200s: got %.300q, want %q", terms, got, want)
		}
	}
}

// TestClassesOfTheCluster: a class that does not exist, and one of another namespace.
func TestClassesOfTheCluster(t *testing.T) {
	const claim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %s}}]}}
`
	for name, want := range map[string]string{
		"gpu.kata-vfio.dev": "", "gpus.kata-vfio.dev": "ClassUnknown spec.devices.requests[0].exactly.deviceClassName",
		"lab.kata-vfio.dev": "ClassNotGranted spec.devices.requests[0].exactly.deviceClassName", "gpu.example.com": "",
	} {
		l := linter(t)
		l.AllClasses = true
		for class, namespaces := range map[string]string{"gpu.kata-vfio.dev": "default", "lab.kata-vfio.dev": "lab"} {
			l.Classes = append(l.Classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: class, Annotations: map[string]string{"kata-vfio.dev/namespaces": namespaces}}})
		}
		l.Add("claim.yaml", fmt.Appendf(nil, claim, name))
		got := ""
		for _, p := range report(t, l).Problems {
			got += string(p.Code) + " " + p.Field
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestPoliciesOfOtherValues are read from what helm prints, and from what kubectl prints.
func TestPoliciesOfOtherValues(t *testing.T) {
	text := strings.ReplaceAll(string(read(t, "policies.yaml")), "'kata-gpu'", "'kata-lab'")
	for _, text := range []string{text, "kind: List\nitems:\n- " + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(text), "\n---\n", "\n---\n- "), "\n", "\n  ")} {
		text = strings.ReplaceAll(text, "\n  ---\n  - ", "\n- ")
		p, err := lint.ParsePolicies([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		l := &lint.Linter{Policies: p}
		l.Add("gpu-pod.yaml", read(t, examples+"/gpu-pod.yaml"))
		r := report(t, l)
		if len(p.Names()) != 7 || len(r.Problems) != 1 || r.Problems[0].Code != rule.HandlerNotAllowed {
			t.Errorf("with the policies %v: got %+v, want %s", p.Names(), r.Problems, rule.HandlerNotAllowed)
		}
	}
}

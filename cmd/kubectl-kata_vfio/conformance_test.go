package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/test/docs"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

// platform is an API server whose cluster shows all that there is to show.
func platform(t *testing.T) *fake.Clientset {
	t.Helper()
	clientset := client(objectsOf(t, "testdata/platform.yaml"))
	clientset.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.2"}
	for group, resources := range map[string][]string{
		"resource.k8s.io/v1": {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}, "kueue.x-k8s.io/v1beta2": {"workloads"}, "custom.metrics.k8s.io/v1beta2": nil,
	} {
		list := &metav1.APIResourceList{GroupVersion: group}
		for _, name := range resources {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		clientset.Resources = append(clientset.Resources, list)
	}
	return clientset
}

const withReport = "conformance --cluster-report testdata/cluster-report.json"

func TestConformanceOfAPlatform(t *testing.T) {
	stdout, stderr, code := ask(t, platform(t), strings.Fields(withReport)...)
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	golden.Compare(t, "conformance.txt", stdout)
	stdout, _, code = ask(t, platform(t), strings.Fields(withReport+" -o yaml")...)
	golden.Compare(t, filepath.Join("../../..", docs.Evidence), stdout)
	var r fleet.ConformanceReport
	if err := yaml.UnmarshalStrict([]byte(stdout), &r); err != nil || code != 0 || r.Profile != fleet.Profiles()[0] || len(r.Requirements) != 16 {
		t.Errorf("exit code %d, %v:\n%s", code, err, stdout)
	}
}

// TestConformanceByAnotherProfile than that of the cluster, which is the default.
func TestConformanceByAnotherProfile(t *testing.T) {
	older := platform(t)
	older.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.36.6"}
	for name, c := range map[string]struct {
		client *fake.Clientset
		args   string
		want   string
	}{
		"the cluster's": {platform(t), "", "v1.37"}, "an older one": {platform(t), " --profile v1.36", "v1.36"},
		"an older cluster's": {older, "", "v1.36"}, "a newer one": {older, " --profile 1.37", "v1.37"},
	} {
		stdout, stderr, code := ask(t, c.client, strings.Fields(withReport+c.args+" -o json")...)
		r := documentOf[fleet.ConformanceReport](t, stdout)
		sandboxing := slices.ContainsFunc(r.Requirements, func(q fleet.Requirement) bool { return q.ID == "workload_sandboxing" })
		if code != 0 || r.Profile.Version != c.want || sandboxing != (c.want == "v1.37") {
			t.Errorf("%s: exit code %d, profile %s, sandboxing: %t: %s", name, code, r.Profile.Version, sandboxing, stderr)
		}
	}
}

// TestEvidenceCanBeRepeated: the evidence's commands of this program print what it shows, on the same cluster. Its examples exist.
func TestEvidenceCanBeRepeated(t *testing.T) {
	var r fleet.ConformanceReport
	if err := yaml.Unmarshal([]byte(docs.Read(t, docs.Evidence)), &r); err != nil {
		t.Fatal(err)
	}
	repeated := 0
	for i := range r.Requirements {
		q := &r.Requirements[i]
		for _, c := range q.Commands {
			if args, ours := strings.CutPrefix(c.Command, program); ours {
				repeated++
				if err := docs.Match(c.Expected, askIn(t, platform(t), strings.Fields(args))); err != nil {
					t.Errorf("%s: %s: %v", q.ID, c.Command, err)
				}
			}
		}
		for _, path := range regexp.MustCompile(`deploy/[a-z./-]+[a-z]`).FindAllString(fmt.Sprint(q), -1) {
			if _, err := os.Stat(filepath.Join(docs.Root(t), path)); err != nil {
				t.Errorf("%s: %v", q.ID, err)
			}
		}
	}
	if repeated < 7 {
		t.Errorf("%d commands of this program: their form has changed", repeated)
	}
}

func TestDocumentsRunCommandsThatExist(t *testing.T) {
	docs.CheckCommands(t, strings.TrimSpace(program), func() *cobra.Command { return newSession().root(io.Discard, io.Discard) }, append(docs.All(t), docs.Evidence)...)
}

// TestConformanceThatIsNotShown: a MUST makes the exit code 3, and the document is written all the same.
func TestConformanceThatIsNotShown(t *testing.T) {
	stdout, stderr, code := ask(t, platform(t), "conformance", "-o", "json")
	if code != exitFindings || !strings.Contains(stderr, "secure_accelerator_access") || documentOf[fleet.ConformanceReport](t, stdout).Kubernetes == "" {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
	unknown := platform(t)
	forbid(unknown, "daemonsets")
	forbid(unknown, "pods")
	stdout, _, code = ask(t, unknown, strings.Fields(withReport)...)
	for _, want := range []string{"daemonsets could not be listed: it is not permitted", "pods could not be listed", "as a user who may list them"} {
		if !strings.Contains(stdout, want) || code != exitFindings {
			t.Errorf("exit code %d, want 3 and %q:\n%s", code, want, stdout)
		}
	}
	blind := platform(t)
	forbid(blind, "resourceslices")
	if stdout, stderr, code := ask(t, blind, strings.Fields(withReport)...); code != exitForbidden || stdout != "" || !strings.Contains(stderr, "kata-vfio-view") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
}

// TestConformanceRefusesOtherReports than those of a cluster, of the last day.
func TestConformanceRefusesOtherReports(t *testing.T) {
	good, err := os.ReadFile("testdata/cluster-report.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, with, want string }{
		"a node's":          {`"cluster"`, `"node"`, "is about a \"node\""},
		"an old one":        {"2026-11-22T09", "2026-11-20T09", "want one of the last day"},
		"one of the future": {"2026-11-22T09", "2026-11-22T19", "want one of the last day"},
		"without a time":    {"2026-11-22T09:00:00Z", "today", "its time is invalid"},
		"another state":     {`"pass"`, `"passed"`, "does not know"},
		"no JSON":           {"{", "", "cluster-report"},
	} {
		file := filepath.Join(t.TempDir(), "report.json")
		if err := os.WriteFile(file, []byte(strings.Replace(string(good), c.old, c.with, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, stderr, code := ask(t, platform(t), "conformance", "--cluster-report", file); code != command.Usage || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, %s", name, code, stderr)
		}
	}
	for _, args := range []string{"-o xml", "--profile v1.35"} {
		if _, stderr, code := ask(t, platform(t), strings.Fields("conformance "+args)...); code != command.Usage {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestConformanceShowsHostileTexts of objects, and does not obey them.
func TestConformanceShowsHostileTexts(t *testing.T) {
	var objects []runtime.Object
	for _, o := range objectsOf(t, "testdata/platform.yaml") {
		switch o := o.(type) {
		case *corev1.Node:
			o.Status.NodeInfo.KernelVersion = hostile
		case *appsv1.DaemonSet:
			o.Spec.Template.Spec.Containers[0].Image = hostile
		}
		objects = append(objects, poisoned(t, o))
	}
	for _, format := range []string{"table", "json", "yaml"} {
		stdout, stderr, _ := ask(t, client(objects), "conformance", "-o", format)
		if format != "table" && !strings.Contains(stdout, "evil") {
			t.Errorf("-o %s shows nothing of it:\n%s", format, stdout)
		}
		if i := strings.IndexFunc(stdout+stderr, func(r rune) bool { return r != '\n' && output.Obeyed(r) }); i >= 0 {
			t.Errorf("-o %s writes %q", format, (stdout + stderr)[i:])
		}
	}
}

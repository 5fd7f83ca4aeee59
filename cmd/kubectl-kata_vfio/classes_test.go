package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

// sampleOffers are classes of all kinds.
func sampleOffers() *offers {
	return &offers{Namespace: "team-a", Updated: "2026-11-22T11:59:20Z", Classes: []cluster.ClassOffer{
		{Name: "gpu.kata-vfio.dev", Everyone: true, Kinds: []string{"gpu"}, Models: []string{"NVIDIA H100 80GB HBM3", "NVIDIA L40S"}, Free: 16, AtLeast: true},
		{Name: "gpu-x2.kata-vfio.dev", Everyone: true, Kinds: []string{"gpu-partition"}, Models: []string{"NVIDIA H100 80GB HBM3"}, Free: 3},
		{Name: "lab.kata-vfio.dev", Kinds: []string{"gpu"}, Models: []string{"NVIDIA L40S"}, ExtendedResource: "example.com/lab-gpu", Sets: []string{"reset"}, Weakens: []string{"reset"}},
		{Name: "tuned.example.com", Kinds: []string{}, Models: []string{}, SelectorFails: true},
		{Name: "vf.kata-vfio.dev", Kinds: []string{"vf"}, Models: []string{"Mellanox ConnectX-7"}, Sets: []string{"vlan", "spoofCheck"}, Weakens: []string{"vlan"}, Free: 7},
	}}
}

// publishing is an API server with the view: all classes are team-a's but one of the lab.
func publishing(t *testing.T) *fake.Clientset {
	t.Helper()
	o := sampleOffers()
	v := cluster.ClassView{Updated: o.Updated, Classes: o.Classes, Grants: []string{
		cluster.GrantKey("lab.kata-vfio.dev", "uid-lab"), cluster.GrantKey("tuned.example.com", "uid-a"), cluster.GrantKey("vf.kata-vfio.dev", "uid-a"),
	}}
	text, err := v.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return client([]runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid-a"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: cluster.ClassesConfigMap}, Data: map[string]string{cluster.ClassesKey: text}},
	})
}

// TestClassesShowsThoseOfTheNamespace and no other.
func TestClassesShowsThoseOfTheNamespace(t *testing.T) {
	stdout, stderr, code := ask(t, publishing(t), "classes")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	golden.Compare(t, "classes.txt", stdout)
	stdout, _, _ = ask(t, publishing(t), "classes", "-o", "json")
	var names []string
	for _, c := range documentOf[offers](t, stdout).Classes {
		names = append(names, c.Name)
	}
	if got, want := strings.Join(names, " "), "gpu.kata-vfio.dev gpu-x2.kata-vfio.dev tuned.example.com vf.kata-vfio.dev"; got != want {
		t.Errorf("got the classes %q, want %q", got, want)
	}
}

// TestClassesSaysWhyThereAreNone: what is missing, and who can change it.
func TestClassesSaysWhyThereAreNone(t *testing.T) {
	forbid := func(resource string) *fake.Clientset {
		c := publishing(t)
		c.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "one", nil)
		})
		return c
	}
	late := publishing(t)
	for name, c := range map[string]struct {
		cluster *fake.Clientset
		args    []string
		code    int
		want    string
	}{
		"no view":          {client(nil), nil, exitNotFound, "kubectl.classes.enabled"},
		"another release":  {late, []string{"--system-namespace", "gpus"}, exitNotFound, "--system-namespace says where the chart is"},
		"no right":         {forbid("configmaps"), nil, exitForbidden, "kubectl.classes.readers"},
		"no namespace":     {forbid("namespaces"), nil, exitForbidden, "the role view grants it"},
		"a mistyped flag":  {late, []string{"-o", "tree"}, 2, "tree"},
		"an unknown space": {client([]runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: cluster.ClassesConfigMap}}}), nil, 1, "has not written it yet"},
	} {
		_, stderr, code := ask(t, c.cluster, append([]string{"classes"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d and %q, want %d and %q", name, code, stderr, c.code, c.want)
		}
	}
}

// TestClassesSaysThatCountsAreOld if nobody renews them.
func TestClassesSaysThatCountsAreOld(t *testing.T) {
	for updated, want := range map[string]string{"2026-11-22T11:59:20Z": "", "2026-11-22T08:00:00Z": "of 4h0m0s ago", "": "does not say when"} {
		if got := sessionOf(client(nil)).late(updated); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("updated %q: got %q, want %q", updated, got, want)
		}
	}
}

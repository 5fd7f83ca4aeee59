//go:build e2e

package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// addPolicy adds a policy of the chart with some values, and its binding, under another name, until the test ends.
func addPolicy(t *testing.T, p *controlplane.ControlPlane, name, as, values string) {
	t.Helper()
	var documents []string
	for _, o := range render(t, values, mutating("v1")...).objects {
		if !strings.Contains(o.GetKind(), "AdmissionPolicy") || o.GetName() != name {
			continue
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, strings.ReplaceAll(string(text), name, as))
	}
	if len(documents) != 2 {
		t.Fatalf("the chart has %d objects named %s with %s, want a policy and its binding", len(documents), name, values)
	}
	both := strings.Join(documents, "---\n")
	apply(t, p, "default", both)
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.KubectlInput(context.Background(), strings.NewReader(both), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
}

// TestOneScheduler: with admission.tenants.schedulerName, pods with devices name that scheduler, whether they have claims or an extended
// resource. Other pods may have another.
func TestOneScheduler(t *testing.T) {
	p := installed(t)
	const label, refused = "e2e.example.com/one-scheduler", "(SchedulerNotAllowed)"
	const values = "admission: {tenants: {schedulerName: kai-scheduler, namespaceLabel: " + label + "}}"
	addPolicy(t, p, "tenant-pods.kata-vfio.dev", "one-scheduler.e2e.example.com", values)
	addPolicy(t, p, "tenant-pod-classes.kata-vfio.dev", "one-scheduler-classes.e2e.example.com", values)
	pods := client(t, p, controlplane.Admin()).CoreV1().Pods(labeledNamespace(t, p, map[string]string{label: ""}))
	const named = "schedulerName: kai-scheduler\n"
	for _, spec := range []string{oneClaim, containers("containers", "deviceclass.resource.kubernetes.io/gpu.kata-vfio.dev")} {
		until(t, "the policies are in force", func(ctx context.Context) error {
			_, err := pods.Create(ctx, pod(t, inVM+spec, ""), dryRunCreate())
			if err == nil || !strings.Contains(err.Error(), refused) {
				return errors.Join(errors.New("want "+refused), err)
			}
			return nil
		})
	}
	for name, attack := range map[string]struct{ spec, want string }{
		"a claim":                       {inVM + oneClaim, "needs schedulerName: kai-scheduler in this namespace"},
		"a claim and the scheduler":     {inVM + oneClaim + named, ""},
		"a claim and another scheduler": {inVM + oneClaim + "schedulerName: other\n", refused},
		"an extended resource":          {inVM + containers("containers", implicit), refused},
		"the same and the scheduler":    {inVM + containers("containers", implicit) + named, ""},
		"no device":                     {"", ""},
		"no device, another scheduler":  {"schedulerName: other\n", ""},
	} {
		_, err := pods.Create(t.Context(), pod(t, attack.spec, ""), dryRunCreate())
		t.Run(name, func(t *testing.T) { wantForbidden(t, err, attack.want) })
	}
}

// TestClaimsAreProtected: with admission.protectClaims, claims that name a class of ours get the finalizer that kube-scheduler would set,
// beside others and once. A claim that nobody allocated can be deleted all the same.
func TestClaimsAreProtected(t *testing.T) {
	p := installed(t)
	addPolicy(t, p, "protect-claims.kata-vfio.dev", "protect-claims.e2e.example.com", "admission: {protectClaims: {enabled: true}}")
	apply(t, p, "default", classesToProtect)
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.KubectlInput(context.Background(), strings.NewReader(classesToProtect), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	claims := client(t, p, controlplane.Admin()).ResourceV1().ResourceClaims(namespace(t, p))
	finalizers := func(ctx context.Context, class string, alternative bool, has ...string) ([]string, error) {
		claim := claimOf(class, alternative)
		claim.Finalizers, claim.Spec.Devices.Requests = has, claim.Spec.Devices.Requests[1:]
		if alternative {
			claim.Spec.Devices.Requests[0].FirstAvailable[0].DeviceClassName = "none.example.com"
		}
		got, err := claims.Create(ctx, claim, dryRunCreate())
		if err != nil {
			return nil, err
		}
		return got.Finalizers, nil
	}
	for _, class := range []string{"gpu.kata-vfio.dev", "own.e2e.example.com"} { // each class is known by itself
		until(t, "the policy is in force for "+class, func(ctx context.Context) error {
			if got, err := finalizers(ctx, class, false); err != nil || len(got) == 0 {
				return errors.Join(errors.New("no finalizer"), err)
			}
			return nil
		})
	}
	const other = "example.com/other"
	for name, c := range map[string]struct {
		class string
		has   []string
		want  []string
	}{
		"a class of the chart":    {"gpu.kata-vfio.dev", nil, []string{resourcev1.Finalizer}},
		"an admin's own class":    {"own.e2e.example.com", nil, []string{resourcev1.Finalizer}},
		"beside another":          {"gpu.kata-vfio.dev", []string{other}, []string{other, resourcev1.Finalizer}},
		"once":                    {"gpu.kata-vfio.dev", []string{resourcev1.Finalizer}, []string{resourcev1.Finalizer}},
		"a class of others":       {"theirs.e2e.example.com", nil, nil},
		"a class that is unknown": {"none.example.com", nil, nil},
	} {
		for _, alternative := range []bool{false, true} {
			got, err := finalizers(t.Context(), c.class, alternative, c.has...)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s, alternative %v: finalizers %v, %v, want %v", name, alternative, got, err, c.want)
			}
		}
	}
	claim, err := claims.Create(t.Context(), claimOf("gpu.kata-vfio.dev", false), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the deleted claim is gone", func(ctx context.Context) error {
		if _, err := claims.Get(ctx, claim.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is not"), err)
		}
		return nil
	})
}

// classesToProtect are an admin's own class for devices of ours, and one of another driver.
const classesToProtect = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: own.e2e.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'kata-vfio.dev'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: theirs.e2e.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
`

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// TestTenantKeepsItsClaimsFinalizers: the role edit changes the rest of a claim, and who may write allocations removes them.
func TestTenantKeepsItsClaimsFinalizers(t *testing.T) {
	p := installed(t)
	ns := tenantNamespace(t, p)
	admin := client(t, p, controlplane.Admin())
	_, err := admin.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "tenant"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := claimWith(t, "VFIOConfig", nil)
	held.Name, held.Finalizers = "held", []string{resourcev1.Finalizer, "example.com/tenants-own"}
	if _, err := admin.ResourceV1().ResourceClaims(ns).Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tenant := controlplane.User{Name: "tenant"}
	until(t, "the tenant has its rights", func(ctx context.Context) error {
		_, err := client(t, p, tenant).ResourceV1().ResourceClaims(ns).Get(ctx, "held", metav1.GetOptions{})
		return err
	})
	const (
		none = `{"metadata":{"finalizers":null}}`
		ours = `{"metadata":{"finalizers":["resource.kubernetes.io/delete-protection"]}}`
	)
	try := func(ctx context.Context, user controlplane.User, patch string) error {
		_, err := client(t, p, user).ResourceV1().ResourceClaims(ns).Patch(ctx, "held", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	until(t, "the policy is in force", func(ctx context.Context) error {
		if try(ctx, tenant, none) == nil {
			return errors.New("the tenant may remove it")
		}
		return nil
	})
	for name, tt := range map[string]struct {
		user    controlplane.User
		patch   string
		refused string
	}{
		"all by the tenant":                {tenant, none, "only the control plane removes them"},
		"another one for it":               {tenant, `{"metadata":{"finalizers":["example.com/tenants-own"]}}`, "only the control plane removes them"},
		"the tenant's own":                 {tenant, ours, ""},
		"a label by the tenant":            {tenant, `{"metadata":{"labels":{"a":"b"}}}`, ""},
		"all by the scheduler":             {controlplane.User{Name: "system:kube-scheduler"}, none, ""},
		"all by the controller":            {controlplane.User{Name: "system:serviceaccount:kube-system:resource-claim-controller"}, none, ""},
		"all by an admin":                  {controlplane.Admin(), none, ""},
		"all by the plugin of a free node": {controlplane.User{Name: "system:serviceaccount:" + system + ":" + plugin}, none, "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			wantForbidden(t, try(t.Context(), tt.user, tt.patch), tt.refused)
		})
	}
}

// TestPodsWithDevicesEndInTime: by their spec, by their probes, and by whoever deletes or evicts them.
func TestPodsWithDevicesEndInTime(t *testing.T) {
	p := installed(t)
	ns := tenantNamespace(t, p)
	pods := client(t, p, controlplane.Admin()).CoreV1().Pods(ns)
	const tooLong = "600 seconds at most"
	probe := func(kind string) string {
		return "containers: [{name: main, image: 'example.com/none:1', " + kind + ": {tcpSocket: {port: 80}, terminationGracePeriodSeconds: 601}}]\n"
	}
	for name, tt := range map[string]struct{ spec, refused string }{
		"the default":             {inVM + oneClaim, ""},
		"ten minutes":             {inVM + oneClaim + "terminationGracePeriodSeconds: 600\n", ""},
		"a second more":           {inVM + oneClaim + "terminationGracePeriodSeconds: 601\n", tooLong},
		"ten years":               {inVM + oneClaim + "terminationGracePeriodSeconds: 315360000\n", tooLong},
		"with a device resource":  {inVM + containers("containers", implicit) + "terminationGracePeriodSeconds: 601\n", tooLong},
		"by its liveness probe":   {inVM + oneClaim + probe("livenessProbe"), tooLong},
		"by its startup probe":    {inVM + oneClaim + probe("startupProbe"), tooLong},
		"ten years of no device":  {"terminationGracePeriodSeconds: 315360000\n", ""},
		"ten years of a plain VM": {inVM + "terminationGracePeriodSeconds: 315360000\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pods.Create(t.Context(), pod(t, tt.spec, ""), dryRunCreate())
			wantForbidden(t, err, tt.refused)
		})
	}
	for name, spec := range map[string]string{"held": inVM + oneClaim, "plain": inVM} {
		one := pod(t, spec, "")
		// A pod without a node ends at once, whatever the deletion says.
		one.Name, one.Spec.NodeName = name, "node-of-the-pods"
		if _, err := pods.Create(t.Context(), one, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the policy is in force", func(ctx context.Context) error {
		if pods.Delete(ctx, "held", metav1.DeleteOptions{GracePeriodSeconds: new(int64(601)), DryRun: []string{metav1.DryRunAll}}) == nil {
			return errors.New("a deletion may take long")
		}
		return nil
	})
	for name, tt := range map[string]struct {
		pod     string
		grace   *int64
		refused string
	}{
		"no grace said": {"held", nil, ""}, "by force": {"held", new(int64(0)), ""}, "in time": {"held", new(int64(600)), ""},
		"too late": {"held", new(int64(601)), tooLong}, "too late without a device": {"plain", new(int64(601)), ""},
	} {
		t.Run("deleted "+name, func(t *testing.T) {
			options := metav1.DeleteOptions{GracePeriodSeconds: tt.grace, DryRun: []string{metav1.DryRunAll}}
			wantForbidden(t, pods.Delete(t.Context(), tt.pod, options), tt.refused)
			if tt.pod == "held" {
				wantForbidden(t, pods.DeleteCollection(t.Context(), options, metav1.ListOptions{FieldSelector: "metadata.name=held"}), tt.refused)
			}
			err := pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: tt.pod, Namespace: ns}, DeleteOptions: &options})
			if strings.Contains(name, "too late") { // an eviction does not show its pod's devices
				wantForbidden(t, err, tooLong)
			} else {
				wantForbidden(t, err, "")
			}
		})
	}
	got, err := pods.Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.Labels = map[string]string{"a": "b"}
	if _, err := pods.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a change of its labels: %v", err)
	}
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

const (
	teamLabel = "example.com/team"
	// teams are values with which namespaces of a team are one tenant.
	teams = "tenancy: {enabled: true, label: " + teamLabel + "}"
	// reserving are values with which domains are reserved before pods are bound.
	reserving = "tenancy: {enabled: true, reserveDomains: true}\nnodeConfig: {devices: [{match: {types: [gpu]}, exclusive: [Node], reserveDomains: true}]}"
)

// TestTenantsOfExclusiveDomains runs the controller with the account, the permissions and the policies that the chart gives it: claims
// get the toleration of their tenant, and no other.
func TestTenantsOfExclusiveDomains(t *testing.T) {
	p := cluster(t)
	systemNamespace(t, p)
	applyTenancy(t, p)
	w := &tenantsTest{t: t, p: p, admin: client(t, p, controlplane.Admin())}
	a, b := namespace(t, p), namespace(t, p)
	until(t, "the policies are in force", func(ctx context.Context) error {
		_, err := w.admin.ResourceV1().ResourceClaims(a).Create(ctx, claimOf("gpu."+driver, false), dryRunCreate())
		if err == nil || !strings.Contains(err.Error(), "has not registered namespace "+a+" as a tenant yet") {
			return fmt.Errorf("a claim without the controller: got %w", err)
		}
		return nil
	})
	w.accepted(a, w.other(), "without the ConfigMap")
	t.Run("TheControllerMayDoNothingElse", func(t *testing.T) { checkTenantRules(t, p) })
	stop := w.registers()
	w.registered(a)
	w.registered(b)
	t.Run("ClaimsTolerateTheirOwnDomains", func(t *testing.T) { w.in(t).checkTolerations(a, b) })
	t.Run("ClaimsOfTheControlPlaneDoSo", func(t *testing.T) { w.in(t).checkTemplate(a) })
	t.Run("OtherTolerationsAreRefused", func(t *testing.T) { w.in(t).checkRefusals(a, b) })
	t.Run("NamespacesOfATeamAreOne", func(t *testing.T) { w.in(t).checkTeams(a) })
	t.Run("PoliciesPassTheTypeCheck", func(t *testing.T) { w.in(t).checkTypes() })
	stop()
	t.Run("EntriesOfFormerNamespacesGiveNothing", func(t *testing.T) { w.in(t).checkFormer(a, b) })
}

// tenantsTest is the test of exclusive domains' tenants on a control plane.
type tenantsTest struct {
	t     *testing.T
	p     *controlplane.ControlPlane
	admin *kubernetes.Clientset
}

// in returns the same for a part of the test.
func (w *tenantsTest) in(t *testing.T) *tenantsTest { return &tenantsTest{t, w.p, w.admin} }

// applyTenancy applies what the chart has for tenants, except for the pods of plugin and controller. At the end it waits until the
// policies are gone, which other tests do not expect. One test of a control plane can apply it: once the last policy with a ConfigMap as
// its parameter is gone, the API server reads none any more (https://github.com/kubernetes/kubernetes/issues/130887).
func applyTenancy(t *testing.T, p *controlplane.ControlPlane) {
	t.Helper()
	var texts []string
	for _, o := range render(t, teams, mutating("v1")...).objects {
		ofController := o.GetName() == controller.Name && slices.Contains([]string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}, o.GetKind())
		if ofController || strings.HasPrefix(o.GetName(), "exclusive-") || o.GetKind() == "DeviceClass" && o.GetName() == "gpu."+driver {
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
	}
	all := strings.Join(texts, "\n---\n")
	if _, err := p.KubectlInput(t.Context(), strings.NewReader(all), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	claims := client(t, p, controlplane.Admin()).ResourceV1().ResourceClaims("default")
	t.Cleanup(func() {
		// The test's own context is over by now.
		ctx := context.Background()
		if _, err := p.KubectlInput(ctx, strings.NewReader(all), "delete", "-f", "-"); err != nil {
			t.Error(err)
		}
		if _, err := p.Kubectl(ctx, "delete", "--namespace", system, "--ignore-not-found", "configmap/"+v1alpha1.TenantsConfigMap); err != nil {
			t.Error(err)
		}
		for {
			made, err := claims.Create(ctx, claimOf("gpu."+driver, false), dryRunCreate())
			if err == nil && len(made.Spec.Devices.Requests[0].Exactly.Tolerations) == 0 {
				return
			}
		}
	})
}

// checkTenantRules compares the controller's rights in its namespace.
func checkTenantRules(t *testing.T, p *controlplane.ControlPlane) {
	own, err := kubernetes.NewForConfig(asController(t, p))
	if err != nil {
		t.Fatal(err)
	}
	known := rulesIn(t, client(t, p, controlplane.User{Name: "anybody", Groups: []string{"system:serviceaccounts"}}), system)
	got := slices.DeleteFunc(rulesIn(t, own, system), func(rule string) bool { return slices.Contains(known, rule) })
	want := []string{
		"[create] [] [configmaps] []", "[get update] [] [configmaps] [kata-vfio-tenants]", "[list watch] [] [namespaces] []",
		"[create] [authentication.k8s.io] [tokenreviews] []", "[create] [authorization.k8s.io] [subjectaccessreviews] []",
		"[create] [coordination.k8s.io] [leases] []", "[get update] [coordination.k8s.io] [leases] [kata-vfio-controller]",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the rules differ (-want +got):\n%s", diff)
	}
}

// registers runs the controller as its program does, until the test ends or stops it.
func (w *tenantsTest) registers() (stop func()) {
	w.t.Helper()
	return runsDaemon(w.t, &controller.Daemon{Cluster: asController(w.t, w.p), Tenants: true, TenantLabel: teamLabel, Identity: "tenants"})
}

// create has the API server do all with a claim but keep it.
func (w *tenantsTest) create(ns string, spec resourcev1.ResourceClaimSpec) (*resourcev1.ResourceClaim, error) {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: spec}
	return w.admin.ResourceV1().ResourceClaims(ns).Create(w.t.Context(), claim, dryRunCreate())
}

// registered waits until a namespace's claims are accepted, and returns its ID.
func (w *tenantsTest) registered(ns string) string {
	w.t.Helper()
	id := ""
	until(w.t, "namespace "+ns+" is registered", func(context.Context) error {
		got, err := w.create(ns, requests(resourcev1.DeviceRequest{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu." + driver}}))
		if err == nil {
			id = got.Spec.Devices.Requests[0].Exactly.Tolerations[0].Value
		}
		return err
	})
	if !v1alpha1.IsTenantID(id) {
		w.t.Fatalf("namespace %s has the ID %q", ns, id)
	}
	return id
}

func requests(all ...resourcev1.DeviceRequest) resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: all}}
}

// other is a claim for a device of another driver.
func (w *tenantsTest) other() resourcev1.ResourceClaimSpec {
	return requests(resourcev1.DeviceRequest{Name: "other", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: foreign}})
}

// accepted checks that a claim is accepted and not changed.
func (w *tenantsTest) accepted(ns string, spec resourcev1.ResourceClaimSpec, when string) {
	w.t.Helper()
	got, err := w.create(ns, spec)
	if err != nil {
		w.t.Errorf("%s: %v", when, err)
		return
	}
	for _, r := range got.Spec.Devices.Requests {
		if len(r.Exactly.Tolerations) > 0 {
			w.t.Errorf("%s, the claim tolerates %v", when, r.Exactly.Tolerations)
		}
	}
}

// ofTenant is the toleration of a tenant's domains.
func ofTenant(id string) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{Key: v1alpha1.TaintTenant, Operator: resourcev1.DeviceTolerationOpEqual, Value: id, Effect: resourcev1.DeviceTaintEffectNoSchedule}
}

// mixed is a claim with requests of each kind: some for devices of ours, with and without tolerations, which are those that it gets.
func mixed(tolerations ...resourcev1.DeviceToleration) resourcev1.ResourceClaimSpec {
	drained := resourcev1.DeviceToleration{Key: driver + "/drain", Operator: resourcev1.DeviceTolerationOpExists}
	exactly := func(name, class string, of ...resourcev1.DeviceToleration) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: "ExactCount", Count: 1, Tolerations: of}}
	}
	sub := func(name, class string, of ...resourcev1.DeviceToleration) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{Name: name, DeviceClassName: class, AllocationMode: "ExactCount", Count: 1, Tolerations: of}
	}
	return requests(
		exactly("bare", "gpu."+driver, tolerations...), exactly("other", foreign), exactly("drained", "vf."+driver, append([]resourcev1.DeviceToleration{drained}, tolerations...)...),
		resourcev1.DeviceRequest{Name: "either", FirstAvailable: []resourcev1.DeviceSubRequest{
			sub("first", "gpu."+driver, tolerations...), sub("other", foreign), sub("drained", "vf."+driver, append([]resourcev1.DeviceToleration{drained}, tolerations...)...),
		}},
		exactly("last", "pf."+driver, tolerations...),
	)
}

// checkTolerations: requests for devices of ours get the toleration of their own tenant once, and others none.
func (w *tenantsTest) checkTolerations(a, b string) {
	ids := map[string]string{a: w.registered(a), b: w.registered(b)}
	if ids[a] == ids[b] {
		w.t.Errorf("two namespaces have the ID %s", ids[a])
	}
	for ns, id := range ids {
		for name, spec := range map[string]resourcev1.ResourceClaimSpec{"none": mixed(), "the own one": mixed(ofTenant(id))} {
			got, err := w.create(ns, spec)
			if err != nil {
				w.t.Errorf("%s: %v", name, err)
				continue
			}
			if diff := cmp.Diff(mixed(ofTenant(id)), got.Spec); diff != "" {
				w.t.Errorf("with %s, the claim differs (-want +got):\n%s", name, diff)
			}
		}
		w.accepted(ns, w.other(), "of another driver")
	}
}

// checkTemplate: the claims that kube-controller-manager makes from a template, and the scheduler for an extended resource, have the
// toleration, too.
func (w *tenantsTest) checkTemplate(ns string) {
	const node = "e2e-tenants"
	addFitNode(w.t, w.p, node)
	published(w.t, w.p, w.admin.ResourceV1().ResourceSlices(), slice(driver, node, node, resourcev1.Device{
		Name: "gpu-0000-3b-00-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": {StringValue: new("gpu")}},
	}))
	template := templateOf(claimOf("gpu."+driver, true))
	template.Name = "gpu"
	if _, err := w.admin.ResourceV1().ResourceClaimTemplates(ns).Create(w.t.Context(), template, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	for name, spec := range map[string]string{"template": aTemplate, "implicit": containers("containers", implicit)} {
		p := pod(w.t, spec, "")
		p.Name = name
		if _, err := w.admin.CoreV1().Pods(ns).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	want := ofTenant(w.registered(ns))
	until(w.t, "both pods have claims", func(ctx context.Context) error {
		all, err := w.admin.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(all.Items) != 2 {
			err = fmt.Errorf("there are %d claims", len(all.Items))
		}
		if err != nil {
			return err
		}
		for _, c := range all.Items {
			for _, r := range c.Spec.Devices.Requests {
				if r.Exactly != nil && !slices.Contains(r.Exactly.Tolerations, want) || r.Exactly == nil && !slices.Contains(r.FirstAvailable[1].Tolerations, want) {
					w.t.Fatalf("claim %s of %v lacks the toleration: %+v", c.Name, c.OwnerReferences, c.Spec.Devices.Requests)
				}
			}
		}
		return nil
	})
}

// checkRefusals: what claims and templates of a namespace may not tolerate.
func (w *tenantsTest) checkRefusals(a, b string) {
	const refused = "tolerates the taint kata-vfio.dev/tenant with the ID of its own tenant only"
	own, foreignID := w.registered(a), w.registered(b)
	exists := resourcev1.DeviceToleration{Key: v1alpha1.TaintTenant, Operator: resourcev1.DeviceTolerationOpExists}
	all := resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists}
	for name, c := range map[string]struct {
		class      string
		toleration resourcev1.DeviceToleration
		want       string
	}{
		"the own ID":                             {"gpu." + driver, ofTenant(own), ""},
		"another tenant's":                       {"gpu." + driver, ofTenant(foreignID), refused},
		"another tenant's, for another driver":   {foreign, ofTenant(foreignID), refused},
		"each tenant's":                          {"gpu." + driver, exists, refused},
		"no ID":                                  {"gpu." + driver, ofTenant(""), refused},
		"all taints":                             {"gpu." + driver, all, refused},
		"all taints of another driver's devices": {foreign, all, ""},
	} {
		for _, r := range []resourcev1.DeviceRequest{
			{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: c.class, Tolerations: []resourcev1.DeviceToleration{c.toleration}}},
			{Name: "one", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "a", DeviceClassName: c.class}, {Name: "b", DeviceClassName: c.class, Tolerations: []resourcev1.DeviceToleration{c.toleration}}}},
		} {
			claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "attack"}, Spec: requests(r)}
			_, errClaim := w.admin.ResourceV1().ResourceClaims(a).Create(w.t.Context(), claim, dryRunCreate())
			_, errTemplate := w.admin.ResourceV1().ResourceClaimTemplates(a).Create(w.t.Context(), templateOf(claim), dryRunCreate())
			w.t.Run(name, func(t *testing.T) {
				wantForbidden(t, errClaim, c.want)
				wantForbidden(t, errTemplate, c.want)
			})
		}
	}
}

// checkTeams: namespaces of a team have one ID, another team and a namespace that leaves it another one.
func (w *tenantsTest) checkTeams(alone string) {
	red := map[string]string{teamLabel: "red"}
	first, second := labeledNamespace(w.t, w.p, red), labeledNamespace(w.t, w.p, red)
	blue := labeledNamespace(w.t, w.p, map[string]string{teamLabel: "blue"})
	id := w.registered(first)
	if got := w.registered(second); got != id {
		w.t.Errorf("namespaces of a team have the IDs %s and %s", id, got)
	}
	for _, ns := range []string{blue, alone} {
		if got := w.registered(ns); got == id {
			w.t.Errorf("namespace %s has the ID %s of another team", ns, got)
		}
	}
	w.joins(second, "blue")
	until(w.t, "the namespace is of the other team", func(context.Context) error {
		if got := w.registered(second); got == id {
			return errors.New("it has the ID of its former team")
		}
		return nil
	})
	if got, want := w.registered(second), w.registered(blue); got != want {
		w.t.Errorf("namespaces of a team have the IDs %s and %s", got, want)
	}
	stored, err := w.admin.CoreV1().ConfigMaps(system).Get(w.t.Context(), v1alpha1.TenantsConfigMap, metav1.GetOptions{})
	if err != nil || len(stored.ManagedFields) > 0 || stored.Data[v1alpha1.TenantKey(first)] != id {
		w.t.Errorf("the ConfigMap is %+v: %v", stored, err)
	}
}

// joins makes a namespace one of a team.
func (w *tenantsTest) joins(ns, team string) {
	w.t.Helper()
	patch := []byte(`{"metadata": {"labels": {"` + teamLabel + `": "` + team + `"}}}`)
	if _, err := w.admin.CoreV1().Namespaces().Patch(w.t.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// checkFormer: while the controller is away, a namespace that was created again with its former name, and one whose label changed, get
// neither the ID that the name had, nor claims.
func (w *tenantsTest) checkFormer(again, joined string) {
	patch := []byte(`{"data": {"identity.` + again + `": "7e4f8f0e-0000-4000-8000-000000000000"}}`)
	if _, err := w.admin.CoreV1().ConfigMaps(system).Patch(w.t.Context(), v1alpha1.TenantsConfigMap, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.joins(joined, "blue")
	for _, ns := range []string{again, joined} {
		until(w.t, "claims of namespace "+ns+" are refused", func(context.Context) error {
			if _, err := w.create(ns, mixed()); err == nil || !strings.Contains(err.Error(), "(TenantUnknown)") {
				return fmt.Errorf("want a refusal with TenantUnknown, got %w", err)
			}
			return nil
		})
		w.accepted(ns, w.other(), "of another driver")
	}
}

// checkTypes: the API server finds no wrong type in the policies' expressions.
func (w *tenantsTest) checkTypes() {
	policies := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for _, name := range []string{"exclusive-claims." + driver, "exclusive-tenants." + driver} {
		until(w.t, "policy "+name+" is checked", func(ctx context.Context) error {
			got, err := policies.Get(ctx, name, metav1.GetOptions{})
			switch {
			case err != nil:
				return err
			case got.Status.TypeChecking == nil:
				return apierrors.NewNotFound(resourcev1.Resource("typechecking"), name)
			case len(got.Status.TypeChecking.ExpressionWarnings) > 0:
				w.t.Errorf("%s: %+v", name, got.Status.TypeChecking.ExpressionWarnings)
			}
			return nil
		})
	}
}

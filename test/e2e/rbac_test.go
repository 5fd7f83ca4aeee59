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
	authorizationv1 "k8s.io/api/authorization/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	model "github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// foreign is another DRA driver.
const foreign = "foreign.example.com"

// twoDrivers is a pod with a claim for a device of ours and one of another driver, both by the pod's name, which the
// devices have, too.
const twoDrivers = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: foreign.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'foreign.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: NAME}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [{cel: {expression: "device.attributes['kata-vfio.dev'].?rule.orValue('') == 'NAME'"}}]}}
    - {name: other, exactly: {deviceClassName: foreign.example.com, selectors: [{cel: {expression: "device.attributes['foreign.example.com'].?rule.orValue('') == 'NAME'"}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  runtimeClassName: kata-gpu
  resourceClaims: [{name: all, resourceClaimName: NAME}]
  containers: [{name: main, image: example.com/none:1, resources: {claims: [{name: all}]}}]
`

// deviceFor is a GPU for the pod of twoDrivers.
func deviceFor(pod string) resourcev1.Device {
	return resourcev1.Device{Name: "gpu-0000-01-00-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		"type": {StringValue: new("gpu")}, "rule": {StringValue: &pod},
	}}
}

// The plugin's own code with the token of its pod.
func TestPluginMayDoItsWork(t *testing.T) {
	const a, b = "e2e-rbac-a", "e2e-rbac-b"
	p := installed(t)
	ns := tenantNamespace(t, p)
	admin := client(t, p, controlplane.Admin())
	addFitNode(t, p, a)
	addFitNode(t, p, b)
	onA := pluginOn(t, p, a)
	t.Run("of publishing its node's devices", func(t *testing.T) { publishes(t, onA, admin, a) })
	allocateOn(t, p, ns, map[string]string{a: "pod-a", b: "pod-b"})
	t.Run("of admitting a pod to its claim", func(t *testing.T) {
		got, err := onA.ResourceV1().ResourceClaims(ns).Get(t.Context(), "pod-a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		req, err := claim.Decode(got, driver)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&dra.Gate{Client: onA, NodeName: a, Handlers: []string{v1alpha1.DefaultHandler}}).Admit(t.Context(), req); err != nil {
			t.Error(err)
		}
	})
	t.Run("and says nothing of another node's health", func(t *testing.T) {
		published := pluginOn(t, p, b).ResourceV1().ResourceSlices()
		list, err := published.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + driver + ",spec.nodeName=" + a})
		if err != nil || len(list.Items) == 0 {
			t.Fatalf("%d slices: %v", len(list.Items), err)
		}
		other := &list.Items[0]
		other.Annotations = map[string]string{model.AnnotationHealth: `{"nri": true}`}
		_, err = published.Update(t.Context(), other, metav1.UpdateOptions{})
		wantRefused(t, err, "of its own node only")
	})
	t.Run("of reporting to claims and pods", func(t *testing.T) { reports(t, onA, admin, a, ns, "pod-a") })
	t.Run("of reporting to a claim whose status can't be applied", func(t *testing.T) { mergesStatus(t, onA, ns, "pod-a", a) })
	t.Run("and touches nothing else of claims", func(t *testing.T) {
		claims := onA.ResourceV1().ResourceClaims(ns)
		wantRefused(t, applyStatus(t, onA, ns, "pod-b", driver, b), `resource="resourceclaims/driver", verb="[arbitrary-node:patch]"`)
		wantRefused(t, applyStatus(t, onA, ns, "pod-a", foreign, a), `resourceclaims/driver`)
		_, err := claims.Patch(t.Context(), "pod-a", types.MergePatchType, []byte(`{"status": {"reservedFor": null}}`), metav1.PatchOptions{}, "status")
		wantRefused(t, err, `resource="resourceclaims/binding"`)
		_, err = claims.Patch(t.Context(), "pod-a", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{})
		wantRefused(t, err, "cannot patch resource")
	})
	t.Run("unless its token is bound to nothing", func(t *testing.T) {
		unbound := withToken(t, p, admin, nil)
		wantRefused(t, applyStatus(t, unbound, ns, "pod-a", driver, a), `resource="resourceclaims/driver", verb="[arbitrary-node:patch]"`)
	})
}

// allocateOn gives each node the devices for a pod, and has the scheduler allocate the pod's claim there.
func allocateOn(t *testing.T, p *controlplane.ControlPlane, ns string, pods map[string]string) {
	t.Helper()
	admin := client(t, p, controlplane.Admin())
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.Kubectl(context.Background(), "delete", "--ignore-not-found", "deviceclass/"+foreign); err != nil {
			t.Error(err)
		}
	})
	for node, pod := range pods {
		published(t, p, pluginOn(t, p, node).ResourceV1().ResourceSlices(), slice(driver, node, node, deviceFor(pod)))
		published(t, p, admin.ResourceV1().ResourceSlices(), slice(foreign, node, node, deviceFor(pod)))
		apply(t, p, ns, strings.ReplaceAll(twoDrivers, "NAME", pod))
		allocated(t, admin, ns, pod)
	}
}

// allocated waits until a claim is allocated and has its pod.
func allocated(t *testing.T, admin *kubernetes.Clientset, ns, name string) {
	t.Helper()
	until(t, "claim "+name+" is allocated", func(ctx context.Context) error {
		got, err := admin.ResourceV1().ResourceClaims(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (got.Status.Allocation == nil || len(got.Status.ReservedFor) == 0) {
			err = errors.New("it is not: " + waiting(ctx, admin, ns))
		}
		return err
	})
}

// applyStatus adds to what a claim says of its device.
func applyStatus(t *testing.T, by *kubernetes.Clientset, ns, name, of, pool string) error {
	t.Helper()
	_, err := by.ResourceV1().ResourceClaims(ns).ApplyStatus(t.Context(),
		resourceac.ResourceClaim(name, ns).WithStatus(resourceac.ResourceClaimStatus().WithDevices(
			resourceac.AllocatedDeviceStatus().WithDriver(of).WithPool(pool).WithDevice("gpu-0000-01-00-0").
				WithData(runtime.RawExtension{Raw: []byte(`{"attack": true}`)}),
		)), metav1.ApplyOptions{FieldManager: "attack", Force: true})
	return err
}

// wantRefused checks that the API server refuses for a missing permission, which it checks late for parts of an object.
func wantRefused(t *testing.T, err error, message string) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), message) {
		t.Errorf("want a refusal with %q, got %v", message, err)
	}
}

// A rule that is added here needs a reason: the plugin is on every node.
func TestPluginMayDoNothingElse(t *testing.T) {
	const node = "e2e-rbac-c"
	p := installed(t)
	addFitNode(t, p, node)
	anybody := rulesOf(t, client(t, p, controlplane.User{Name: "anybody", Groups: []string{"system:serviceaccounts"}}))
	got := slices.DeleteFunc(rulesOf(t, pluginOn(t, p, node)), func(rule string) bool { return slices.Contains(anybody, rule) })
	want := []string{
		"[create patch] [events.k8s.io] [events] []",
		"[create] [authentication.k8s.io] [tokenreviews] []",
		"[create] [authorization.k8s.io] [subjectaccessreviews] []",
		"[get] [] [nodes] []",
		"[get] [] [pods] []",
		"[get] [node.k8s.io] [runtimeclasses] []",
		"[get] [resource.k8s.io] [deviceclasses] []",
		"[get] [resource.k8s.io] [resourceclaims] []",
		"[list] [resource.k8s.io] [resourceclaims] []", // see "Permissions in the API" in the chart's README
		"[patch] [resource.k8s.io] [resourceclaims/status] []",
		"[associated-node:patch] [resource.k8s.io] [resourceclaims/driver] [kata-vfio.dev]",
		"[list watch create update delete] [resource.k8s.io] [resourceslices] []",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the rules differ (-want +got):\n%s", diff)
	}
}

// rulesOf are what a user may do in the plugin's namespace and in the whole cluster, sorted.
func rulesOf(t *testing.T, by *kubernetes.Clientset) []string {
	t.Helper()
	return rulesIn(t, by, system)
}

// rulesIn is the same of a namespace.
func rulesIn(t *testing.T, by *kubernetes.Clientset, namespace string) []string {
	t.Helper()
	review, err := by.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, r := range review.Status.ResourceRules {
		rules = append(rules, fmt.Sprint(r.Verbs, r.APIGroups, r.Resources, r.ResourceNames))
	}
	for _, r := range review.Status.NonResourceRules {
		rules = append(rules, fmt.Sprint(r.Verbs, r.NonResourceURLs))
	}
	slices.Sort(rules)
	return rules
}

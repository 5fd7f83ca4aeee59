//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// What the policy for claims' status says.
const (
	onlyDevices       = "the kata-vfio plugin may change nothing of a claim's status but devices"
	onlyDriversStatus = "the kata-vfio plugin may change a claim's status.devices of driver kata-vfio.dev only"
	onlyNodesStatus   = "a kata-vfio plugin may change a claim's status.devices of its own node's pools only"
)

// allOfStatus gives the plugin what an API server before 1.36 gave to whoever may patch a claim's status. Those
// since check the permissions before they ask policies.
const allOfStatus = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-all-of-status}
rules:
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/binding], verbs: [patch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/driver], verbs: ["arbitrary-node:patch"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-all-of-status}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-all-of-status}
subjects: [{kind: ServiceAccount, namespace: kata-vfio-system, name: kata-vfio-plugin}]
`

// statusChange is a change of a claim's status, and what the policy says if the plugin of the node e2e-status-a tries it.
type statusChange struct {
	claim  string
	status map[string]any
	want   string
}

func statusChanges() map[string]statusChange {
	const a, b = "e2e-status-a", "e2e-status-b"
	devices := func(entries ...resourcev1.AllocatedDeviceStatus) map[string]any {
		return map[string]any{"devices": entries}
	}
	ours, theirs := entry(driver, a, "old"), entry(foreign, a, "old")
	stranger := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "stranger", UID: "stranger"}
	return map[string]statusChange{
		"its own entry":                    {"pod-a", devices(entry(driver, a, "new"), theirs), ""},
		"its own entry, removed":           {"pod-a", devices(theirs), ""},
		"the entries' order":               {"pod-a", devices(theirs, ours), ""},
		"nothing":                          {"pod-a", map[string]any{}, ""},
		"everything, removed":              {"pod-a", nil, onlyDevices},
		"another driver's entry":           {"pod-a", devices(ours, entry(foreign, a, "new")), onlyDriversStatus},
		"another driver's entry, removed":  {"pod-a", devices(ours), onlyDriversStatus},
		"all entries, removed":             {"pod-a", devices(), onlyDriversStatus},
		"another driver's entry, added":    {"pod-b", devices(entry(foreign, b, "new")), onlyDriversStatus},
		"another node's entry":             {"pod-b", devices(entry(driver, b, "new")), onlyNodesStatus},
		"an entry of a pool below its own": {"below", devices(entry(driver, a+"/pf", "new")), ""},
		"an entry of a pool like its own":  {"like", devices(entry(driver, a+"-b", "new")), onlyNodesStatus},
		"the consumers":                    {"pod-a", map[string]any{"reservedFor": []any{stranger}}, onlyDevices},
		"the consumers, removed":           {"pod-a", map[string]any{"reservedFor": nil}, onlyDevices},
		"the consumers beside its own entry": {
			"pod-a", map[string]any{"reservedFor": nil, "devices": devices(entry(driver, a, "new"), theirs)["devices"]}, onlyDevices,
		},
		// To change an allocation is to take it away and then to make it up: the API server refuses to do both at once.
		"the allocation, taken away": {"pod-a", map[string]any{"allocation": nil, "reservedFor": nil}, onlyDevices},
		"the allocation, made up":    {"free", map[string]any{"allocation": madeUp(b)}, onlyDevices},
	}
}

// entry is what a driver may say of the device of its pool.
func entry(of, pool, what string) resourcev1.AllocatedDeviceStatus {
	return resourcev1.AllocatedDeviceStatus{
		Driver: of, Pool: pool, Device: deviceFor("").Name, Data: &runtime.RawExtension{Raw: []byte(`{"e2e": "` + what + `"}`)},
	}
}

// madeUp is an allocation whose plugin would take it for the DeviceClass's word that the device needs no reset.
func madeUp(pool string) map[string]any {
	return map[string]any{"devices": map[string]any{
		"results": []any{map[string]any{"request": "one", "driver": driver, "pool": pool, "device": deviceFor("").Name}},
		"config": []any{map[string]any{"source": "FromClass", "opaque": map[string]any{"driver": driver, "parameters": map[string]any{
			"apiVersion": v1alpha1.APIVersion, "kind": v1alpha1.KindVFIOConfig, "reset": v1alpha1.ResetSkip,
		}}}},
	}}
}

// Each attack is one that the API server takes from an admin: what refuses it is the policy.
func TestPluginChangesOnlyItsOwnDevicesInAClaimsStatus(t *testing.T) {
	const a, b = "e2e-status-a", "e2e-status-b"
	p := installed(t)
	ns := tenantNamespace(t, p)
	admin := client(t, p, controlplane.Admin())
	addFitNode(t, p, a)
	addFitNode(t, p, b)
	allocateOn(t, p, ns, map[string]string{a: "pod-a", b: "pod-b"})
	allocateByHand(t, admin, ns, "free", nil)
	allocateByHand(t, admin, ns, "below", madeUp(a+"/pf"))
	allocateByHand(t, admin, ns, "like", madeUp(a+"-b"))
	before := map[string]any{"devices": []any{entry(driver, a, "old"), entry(foreign, a, "old")}}
	if err := patchStatus(t.Context(), admin, ns, "pod-a", before, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	onA, unbound := pluginOn(t, p, a), withToken(t, p, admin, nil)
	defer grantAllOfStatus(t, p, onA)()
	for name, change := range statusChanges() {
		t.Run(name, func(t *testing.T) {
			wantForbidden(t, tryStatus(t, admin, ns, change), "")
			wantForbidden(t, tryStatus(t, onA, ns, change), change.want)
		})
	}
	t.Run("and that with a token that names its node", func(t *testing.T) {
		wantForbidden(t, tryStatus(t, unbound, ns, statusChanges()["its own entry"]), namesNode)
	})
}

// allocateByHand makes a claim that has an allocation, or none, without a scheduler.
func allocateByHand(t *testing.T, admin *kubernetes.Clientset, ns, name string, allocation map[string]any) {
	t.Helper()
	claim := claimWith(t, v1alpha1.KindVFIOConfig, nil)
	claim.Name = name
	if _, err := admin.ResourceV1().ResourceClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if allocation == nil {
		return
	}
	if err := patchStatus(t.Context(), admin, ns, name, map[string]any{"allocation": allocation}, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// grantAllOfStatus has the API server act by allOfStatus. What it returns ends that, before the test does.
func grantAllOfStatus(t *testing.T, p *controlplane.ControlPlane, by *kubernetes.Clientset) func() {
	t.Helper()
	apply(t, p, system, allOfStatus)
	await := func(want bool) {
		until(t, fmt.Sprintf("the plugin's permission for all of a claim's status is %t", want), func(ctx context.Context) error {
			got, err := by.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: resourcev1.GroupName, Resource: "resourceclaims", Subresource: resourcev1.SubresourceBinding, Verb: "patch",
				}},
			}, metav1.CreateOptions{})
			if err == nil && got.Status.Allowed != want {
				err = errors.New("it is not")
			}
			return err
		})
	}
	await(true)
	return func() {
		if _, err := p.KubectlInput(t.Context(), strings.NewReader(allOfStatus), "delete", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		await(false)
	}
}

// tryStatus changes a claim's status, as a dry run.
func tryStatus(t *testing.T, by *kubernetes.Clientset, ns string, change statusChange) error {
	t.Helper()
	return patchStatus(t.Context(), by, ns, change.claim, change.status, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
}

// patchStatus replaces fields of a claim's status.
func patchStatus(ctx context.Context, by *kubernetes.Clientset, ns, claim string, status map[string]any, opts metav1.PatchOptions) error {
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = by.ResourceV1().ResourceClaims(ns).Patch(ctx, claim, types.MergePatchType, text, opts, "status")
	return err
}

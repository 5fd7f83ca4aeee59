//go:build e2e

package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// objects are a node's two devices, a class that takes the large one only, and a pod that claims one.
const objects = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: large.e2e.example.com}
spec:
  selectors:
  - cel: {expression: 'device.driver == "e2e.example.com" && device.attributes["e2e.example.com"].size == "large"'}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: e2e-node-a}
spec:
  driver: e2e.example.com
  nodeName: e2e-node-a
  pool: {name: e2e-node-a, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: small-0, attributes: {size: {string: small}}}
  - {name: large-0, attributes: {size: {string: large}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: large.e2e.example.com}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  resourceClaims: [{name: one, resourceClaimName: one}]
  containers:
  - {name: main, image: example.com/none:1, resources: {claims: [{name: one}]}}
`

func testAllocation(t *testing.T) {
	p := cluster(t)
	admin, ns := client(t, p, controlplane.Admin()), namespace(t, p)
	addNode(t, p, "e2e-node-a")
	t.Cleanup(func() {
		// The test's own context is over by now.
		_, err := p.Kubectl(context.Background(), "delete", "resourceslice/e2e-node-a", "deviceclass/large.e2e.example.com")
		if err != nil {
			t.Error(err)
		}
	})
	apply(t, p, ns, objects)
	var claim *resourcev1.ResourceClaim
	until(t, "the claim is allocated", func(ctx context.Context) (err error) {
		claim, err = admin.ResourceV1().ResourceClaims(ns).Get(ctx, "one", metav1.GetOptions{})
		if err == nil && (claim.Status.Allocation == nil || len(claim.Status.ReservedFor) == 0) {
			err = errors.New("it is not")
		}
		return err
	})
	want := []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: "e2e.example.com", Pool: "e2e-node-a", Device: "large-0"},
	}
	if diff := cmp.Diff(want, claim.Status.Allocation.Devices.Results); diff != "" {
		t.Errorf("the allocation differs (-want +got):\n%s", diff)
	}
	until(t, "the pod has its node", func(ctx context.Context) error {
		pod, err := admin.CoreV1().Pods(ns).Get(ctx, "user", metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName != "e2e-node-a" {
			err = errors.New("its node is " + pod.Spec.NodeName)
		}
		return err
	})
	checkBoundToken(t, p, ns)
}

// checkBoundToken mints a token as a kubelet does for its pod: the API server knows the node from it.
func checkBoundToken(t *testing.T, p *controlplane.ControlPlane, ns string) {
	t.Helper()
	admin := client(t, p, controlplane.Admin())
	pod, err := admin.CoreV1().Pods(ns).Get(t.Context(), "user", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	kubelet := client(t, p, controlplane.NodeIdentity("e2e-node-a"))
	// The Node authorizer learns of the binding a moment later than we do.
	until(t, "the kubelet has a token for its pod", func(ctx context.Context) error {
		got, err := kubelet.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "default", request, metav1.CreateOptions{})
		if err == nil {
			request.Status = got.Status
		}
		return err
	})
	review, err := admin.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: request.Status.Token},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{
		"name": {review.Status.User.Username},
		"node": review.Status.User.Extra["authentication.kubernetes.io/node-name"],
	}
	want := map[string][]string{"name": {"system:serviceaccount:" + ns + ":default"}, "node": {"e2e-node-a"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the token's user differs (-want +got):\n%s%s", diff, review.Status.Error)
	}
}

// addNode adds a node without a kubelet, which is ready until the controller manager misses its heartbeat, after
// most of a minute.
func addNode(t *testing.T, p *controlplane.ControlPlane, name string) {
	t.Helper()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	admin := client(t, p, controlplane.Admin())
	_, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if err := admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

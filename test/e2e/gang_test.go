//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

const (
	gangNode    = "e2e-gang"
	gangExample = "../../deploy/examples/gang/job.yaml"
)

// threeGPUs is a pod that leaves five of the node's eight GPUs.
const threeGPUs = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: three}
spec: {spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu.kata-vfio.dev, count: 3}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: three}
spec:
  runtimeClassName: kata-gpu
  resourceClaims: [{name: gpus, resourceClaimTemplateName: three}]
  containers: [{name: main, image: example.com/none:1, resources: {limits: {cpu: "1", memory: 1Gi}, claims: [{name: gpus}]}}]
`

// testGang applies the example, whose three pods want six GPUs: none gets its claim while five are free, and all get theirs when
// there are more.
func testGang(t *testing.T, p *controlplane.ControlPlane) {
	admin, ns := client(t, p, controlplane.Admin()), tenantNamespace(t, p)
	addFitNode(t, p, gangNode)
	keepReady(t, p, gangNode)
	for _, s := range fleet.Slices(publish.Pools(fleet.Node(gangNode, 0, nil)), gangNode, gangNode) {
		published(t, p, pluginOn(t, p, gangNode).ResourceV1().ResourceSlices(), s)
	}
	apply(t, p, ns, threeGPUs)
	gpusOf(t, admin, ns, "the first pod has three GPUs", map[string]int{"three": 3})
	example, err := os.ReadFile(gangExample)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, p, ns, string(example))
	until(t, "the gang waits", func(ctx context.Context) error {
		if why := gangWaits(ctx, admin, ns); !strings.Contains(why, "minCount (3) cannot be satisfied") {
			return errors.New(why)
		}
		return nil
	})
	gpusOf(t, admin, ns, "no pod of the gang has a GPU", map[string]int{"three": 3})
	if _, err := p.Kubectl(t.Context(), "delete", "pod/three", "--namespace", ns, "--force", "--grace-period=0", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	gpusOf(t, admin, ns, "the gang has its GPUs", map[string]int{"ring-0": 2, "ring-1": 2, "ring-2": 2})
}

// gangWaits is what the API says of the gang and of pods without a node.
func gangWaits(ctx context.Context, admin *kubernetes.Clientset, ns string) string {
	why := waiting(ctx, admin, ns)
	group, err := admin.SchedulingV1beta1().PodGroups(ns).Get(ctx, "ring", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, c := range group.Status.Conditions {
		why += fmt.Sprintf("\n%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return why
}

// unitGPUs waits until the pods with allocated claims are those, with that many devices, and all of them have the node. A Job's pods
// have a suffix of their own, which is left out.
func gpusOf(t *testing.T, admin *kubernetes.Clientset, ns, what string, want map[string]int) {
	t.Helper()
	until(t, what, func(ctx context.Context) error {
		claims, err := admin.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := map[string]int{}
		for _, c := range claims.Items {
			if c.Status.Allocation != nil && len(c.Status.ReservedFor) == 1 {
				got[podOf(c.Status.ReservedFor[0].Name)] += len(c.Status.Allocation.Devices.Results)
			}
		}
		pods, err := admin.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		bound := map[string]int{}
		for _, pod := range pods.Items {
			if pod.Spec.NodeName == gangNode {
				bound[podOf(pod.Name)] = want[podOf(pod.Name)]
			}
		}
		if !maps.Equal(got, want) || !maps.Equal(bound, want) {
			return fmt.Errorf("allocated %v, bound %v: %s", got, bound, waiting(ctx, admin, ns))
		}
		return nil
	})
}

// newPod is the name of a pod without the suffix of an indexed Job's: "ring-0-x7k2p" is "ring-0".
func podOf(name string) string {
	parts := strings.Split(name, "-")
	return strings.Join(parts[:min(len(parts), 2)], "-")
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/e2e/kai"
)

// testReclaim: a queue without a quota has borrowed all GPUs that are left. Another one gets its quota of one back, and its pod gets a GPU only
// after the borrower's pod is gone. How many pods KAI evicts is not tested: it depends on the time that they take to end.
func (c *kaiCluster) testReclaim(t *testing.T) {
	apply(t, c.plane, "default", kai.Queue("borrows", "all", 0, -1)+kai.Queue("owed", "all", 1, 1))
	const left = fleet.Rails - 1 - 2 // without those of the pods in quarantine and in the queue "two"
	borrowers := tenantNamespace(t, c.plane)
	for i := range left {
		c.run(t, borrowers, fmt.Sprintf("borrower-%d", i), "gpu."+driver, "borrows")
	}
	c.placed(t, borrowers, left)
	owed := c.run(t, "", "owed", "gpu."+driver, "owed")
	until(t, "a borrower is evicted", func(ctx context.Context) error {
		if ending, err := c.ending(ctx, borrowers); err != nil || len(ending) > 0 {
			return err
		}
		return errors.Join(errors.New("none is: "+c.told(ctx, owed, "owed")), c.kai.Lost())
	})
	c.keepsTaken(t, owed, "owed")
	ending, err := c.ending(t.Context(), borrowers)
	if err != nil {
		t.Fatal(err)
	}
	released := c.devicesOf(t, borrowers, ending)
	c.end(t, borrowers, ending)
	if got := c.bound(t, owed, "owed").Status.Allocation.Devices.Results[0].Device; !slices.Contains(released, got) {
		t.Errorf("the pod has %s, want one of those that were released: %v", got, released)
	}
	c.drop(t, borrowers)
	c.drop(t, owed)
}

// ending returns the names of the pods that were told to end.
func (c *kaiCluster) ending(ctx context.Context, ns string) ([]string, error) {
	list, err := c.admin.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// keepsTaken watches for some cycles that a pod has no node, and that no two claims have the same device.
func (c *kaiCluster) keepsTaken(t *testing.T, ns, name string) {
	t.Helper()
	const long = 5 * time.Second
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(long / 20) {
		pod, err := c.admin.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.NodeName != "" {
			t.Fatalf("pod %s has a node before a pod that had a GPU was removed by this test", name)
		}
		c.checkExclusive(t)
	}
}

// checkExclusive fails if two claims of the cluster have the same device.
func (c *kaiCluster) checkExclusive(t *testing.T) {
	t.Helper()
	list, err := c.admin.ResourceV1().ResourceClaims(corev1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{}
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			at, who := r.Driver+"/"+r.Pool+"/"+r.Device, claim.Namespace+"/"+claim.Name
			if other, taken := owners[at]; taken {
				t.Errorf("%s is allocated to %s and to %s", at, other, who)
			}
			owners[at] = who
		}
	}
}

// devicesOf returns the devices of pods.
func (c *kaiCluster) devicesOf(t *testing.T, ns string, pods []string) []string {
	t.Helper()
	devices := make([]string, 0, len(pods))
	for _, name := range pods {
		devices = append(devices, c.bound(t, ns, name).Status.Allocation.Devices.Results[0].Device)
	}
	return devices
}

// end removes pods, as kubelets would once their containers have ended.
func (c *kaiCluster) end(t *testing.T, ns string, pods []string) {
	t.Helper()
	if _, err := c.plane.Kubectl(t.Context(), append([]string{"delete", "pods", "--namespace", ns, "--force", "--grace-period=0"}, pods...)...); err != nil {
		t.Fatal(err)
	}
}

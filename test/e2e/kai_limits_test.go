//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/kai"
)

// drop removes a namespace's pods, as kubelets would, so that others can have their devices.
func (c *kaiCluster) drop(t *testing.T, ns string) {
	t.Helper()
	if _, err := c.plane.Kubectl(t.Context(), "delete", "jobs,pods", "--all", "--namespace", ns, "--force", "--grace-period=0"); err != nil {
		t.Fatal(err)
	}
}

// gets waits until a pod has a node, which is a fault of KAI's. It fails once the pod says that KAI knows better.
func (c *kaiCluster) gets(t *testing.T, ns, name, knows, limit string) {
	t.Helper()
	until(t, "pod "+name+" has a node", func(ctx context.Context) error {
		pod, err := c.admin.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil || pod.Spec.NodeName != "" {
			return err
		}
		told := c.told(ctx, ns, name)
		if strings.Contains(told, knows) {
			t.Fatalf("known limit gone: %s; correct deploy/examples/README.md (KAI), and this test", limit)
		}
		return errors.Join(errors.New("it has none: "+told), c.kai.Lost())
	})
}

// testAlias: the queue "two" has its two GPUs, and gets another one by a class without gpu in its name.
func (c *kaiCluster) testAlias(t *testing.T) {
	class := render(t, "deviceClasses: {gpu: {alias: true}}").find("DeviceClass", "accelerator."+driver)
	if class == nil {
		t.Fatal("the chart has no alias")
	}
	text, err := class.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, c.plane, "default", string(text))
	ns := c.run(t, "", "alias", "accelerator."+driver, "two")
	c.gets(t, ns, "alias", "Limit is 2 GPUs", "KAI counts devices of the alias in its queues")
	c.drop(t, ns)
}

// testTainted: the GPU is in quarantine, and KAI up to 0.17 has no taints of devices on. The pod stays, so that no GPU is left that is not counted.
func (c *kaiCluster) testTainted(t *testing.T) {
	ns := tenantNamespace(c.t, c.plane)
	const one = "deviceClassName: accelerator." + driver
	selected := one + `, selectors: [{cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '` + quarantinedGPU + `'"}}]`
	apply(t, c.plane, ns, strings.Replace(kaiPod("tainted", "accelerator."+driver, kai.AnyQueue), one, selected, 1))
	c.gets(t, ns, "tainted", "cannot allocate all DRA claims", "KAI gives nobody a GPU with a taint")
}

// namedPod is a pod of any queue with a claim that somebody has made, which comes with it.
func namedPod(name, class string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %[1]s}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: %[2]s}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {%[3]s: %[4]s}}
spec:
  schedulerName: %[5]s
  runtimeClassName: kata-gpu
  restartPolicy: Never
  resourceClaims: [{name: one, resourceClaimName: %[1]s}]
  containers: [{name: main, image: "example.com/none:1", resources: {requests: {cpu: "1", memory: 1Gi}, claims: [{name: one}]}}]
`, name, class, kai.QueueLabel, kai.AnyQueue, kai.Scheduler)
}

// placed waits until pods have nodes.
func (c *kaiCluster) placed(t *testing.T, ns string, pods int) {
	t.Helper()
	until(t, fmt.Sprintf("%d pods have nodes", pods), func(ctx context.Context) error {
		have, told := c.nodes(ctx, ns)
		if have != pods {
			return errors.Join(fmt.Errorf("%d have: %s", have, told), c.kai.Lost())
		}
		return nil
	})
}

// nodes counts the pods that have nodes, and returns what the others say.
func (c *kaiCluster) nodes(ctx context.Context, ns string) (have int, told string) {
	list, err := c.admin.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err.Error()
	}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Spec.NodeName != "" {
			have++
		} else {
			told += c.told(ctx, ns, pod.Name) + "\n"
		}
	}
	return have, told
}

// testNamedStays: kube-scheduler's claim is free a second after its last pod. KAI sets no finalizer, by which the controller would know the claim.
func (c *kaiCluster) testNamedStays(t *testing.T) {
	ns := tenantNamespace(t, c.plane)
	apply(t, c.plane, ns, namedPod("named", "vf."+driver))
	c.placed(t, ns, 1)
	c.drop(t, ns)
	const long = 5 * time.Second
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(long / 10) {
		claim, err := c.admin.ResourceV1().ResourceClaims(ns).Get(t.Context(), "named", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if claim.Status.Allocation == nil {
			t.Fatal("known limit gone: a claim by name is free after its pod; correct deploy/examples/README.md (KAI), and this test")
		}
	}
}

// testNamedLabel: a claim by name for GPUs is nobody's without a queue.
func (c *kaiCluster) testNamedLabel(t *testing.T) {
	ns := tenantNamespace(t, c.plane)
	apply(t, c.plane, ns, namedPod("mine", "gpu."+driver))
	c.waits(t, ns, "mine", "does not have a queue label (kai.scheduler/queue)", "KAI allocates a claim by name without a queue")
	if _, err := c.plane.Kubectl(t.Context(), "label", "--namespace", ns, "resourceclaim/mine", kai.QueueLabel+"="+kai.AnyQueue); err != nil {
		t.Fatal(err)
	}
	c.placed(t, ns, 1)
	c.drop(t, ns)
	if _, err := c.plane.Kubectl(t.Context(), "delete", "--namespace", ns, "resourceclaim/mine"); err != nil {
		t.Fatal(err)
	}
}

// kaiGang is a Job of two pods with two GPUs each, which start together.
func kaiGang(name string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec: {spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu.%[2]s, count: 2}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s, annotations: {kai.scheduler/batch-min-member: "2"}, labels: {%[3]s: %[4]s}}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {labels: {%[3]s: %[4]s}}
    spec:
      schedulerName: %[5]s
      runtimeClassName: kata-gpu
      restartPolicy: Never
      resourceClaims: [{name: gpus, resourceClaimTemplateName: %[1]s}]
      containers: [{name: main, image: "example.com/none:1", resources: {requests: {cpu: "1", memory: 1Gi}, claims: [{name: gpus}]}}]
`, name, driver, kai.QueueLabel, kai.AnyQueue, kai.Scheduler)
}

// testGangs: of the node's seven GPUs without a taint, a gang gets four. Another one waits, with none of the other three, until the first is gone.
func (c *kaiCluster) testGangs(t *testing.T) {
	fits, waits := tenantNamespace(t, c.plane), tenantNamespace(t, c.plane)
	t.Run("GangFits", func(t *testing.T) {
		apply(t, c.plane, fits, kaiGang("fits"))
		c.placed(t, fits, 2)
	})
	t.Run("GangWaits", func(t *testing.T) {
		apply(t, c.plane, waits, kaiGang("waits"))
		until(t, "the gang says that it waits", func(ctx context.Context) error {
			have, told := c.nodes(ctx, waits)
			if have > 0 {
				t.Fatalf("%d pods of a gang of two have nodes", have)
			}
			if !strings.Contains(told, "required for gang scheduling") {
				return errors.Join(errors.New(told), c.kai.Lost())
			}
			return nil
		})
		claims, err := c.admin.ResourceV1().ResourceClaims(waits).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range claims.Items {
			if claims.Items[i].Status.Allocation != nil {
				t.Errorf("claim %s of a gang that waits is allocated", claims.Items[i].Name)
			}
		}
		c.drop(t, fits)
		c.placed(t, waits, 2)
		c.drop(t, waits)
	})
}

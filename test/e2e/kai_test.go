//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/kai"
)

// Nodes of the tests with KAI.
const (
	kaiPlain = "e2e-kai-plain" // GPUs and VFs without counters
	kaiPairs = "e2e-kai-pairs" // GPUs that are published alone and in pairs, by counters
)

// kaiCluster is a cluster that KAI schedules, as the test of a namespace sees it.
type kaiCluster struct {
	t     *testing.T
	plane *controlplane.ControlPlane
	admin *kubernetes.Clientset
	kai   *kai.KAI
}

// TestKAI has the scheduler KAI, from the directory that KAI names, allocate our devices. `make kai` runs it. What KAI can't do is tested,
// too: a test of a known limit fails as soon as KAI can, so that deploy/examples/README.md is corrected.
func TestKAI(t *testing.T) {
	dir := os.Getenv("KAI")
	if dir == "" {
		t.Fatal("KAI names no directory with the programs of KAI. Build them, and run make kai KAI=DIR (test/e2e/README.md, \"With KAI\")")
	}
	p := installed(t)
	k, err := kai.Start(t.Context(), p, kai.Config{Dir: dir, Logs: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	c := &kaiCluster{t: t, plane: p, admin: client(t, p, controlplane.Admin()), kai: k}
	publishFleet(t, p, kaiPlain, fleet.Node(kaiPlain, 2, nil), quarantinedGPU)
	t.Run("VF", c.testVF)
	t.Run("ClaimHasNoFinalizer", c.testNoFinalizer)
	t.Run("NamedClaimStaysAllocated", c.testNamedStays) // with the finalizer, from the second pod on
	t.Run("PolicySetsTheFinalizer", c.testFinalizer)
	t.Run("GPUWithoutACountWaits", c.testUncounted)
	countGPUs(t, p)
	awaitCount(t, c.admin, kaiPlain, fleet.Rails-1) // without the one in quarantine
	t.Run("CountedGPU", c.testCounted)
	c.testGangs(t)
	t.Run("NamedClaimNeedsTheQueueLabel", c.testNamedLabel)
	t.Run("LimitOfAQueue", c.testLimit)
	t.Run("AliasPassesTheLimit", c.testAlias)
	t.Run("TaintedGPUIsGiven", c.testTainted)
	t.Run("ReclaimGivesAfterTheRelease", c.testReclaim)
	publishFleet(t, p, kaiPairs, fleet.Node(kaiPairs, 2, &v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch}))
	awaitCount(t, c.admin, kaiPairs, fleet.Rails)
	t.Run("PairWaits", c.testPair)
	if err := k.Lost(); err != nil {
		t.Error(err)
	}
}

// kaiPod is a pod of a queue with a claim of its own for a device of a class.
func kaiPod(name, class, queue string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec: {spec: {devices: {requests: [{name: one, exactly: {deviceClassName: %[2]s}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {%[3]s: %[4]s}}
spec:
  schedulerName: %[5]s
  runtimeClassName: kata-gpu
  restartPolicy: Never
  resourceClaims: [{name: one, resourceClaimTemplateName: %[1]s}]
  containers: [{name: main, image: "example.com/none:1", resources: {requests: {cpu: "1", memory: 1Gi}, claims: [{name: one}]}}]
`, name, class, kai.QueueLabel, queue, kai.Scheduler)
}

// run creates a pod in a namespace of its own, or in the one that is given.
func (c *kaiCluster) run(t *testing.T, ns, name, class, queue string) string {
	t.Helper()
	if ns == "" {
		ns = tenantNamespace(t, c.plane)
	}
	apply(t, c.plane, ns, kaiPod(name, class, queue))
	return ns
}

// bound waits until a pod has a node, and returns its claim.
func (c *kaiCluster) bound(t *testing.T, ns, name string) *resourcev1.ResourceClaim {
	t.Helper()
	var claim *resourcev1.ResourceClaim
	until(t, "pod "+name+" has a node", func(ctx context.Context) error {
		pod, err := c.admin.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.NodeName == "" || len(pod.Status.ResourceClaimStatuses) == 0 {
			return errors.Join(errors.New("it has none: "+c.told(ctx, ns, name)), c.kai.Lost())
		}
		claim, err = c.admin.ResourceV1().ResourceClaims(ns).Get(ctx, *pod.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
		if err == nil && claim.Status.Allocation == nil {
			err = errors.New("its claim is not allocated")
		}
		return err
	})
	return claim
}

// waits waits until a pod says why it has no node. It fails once it has one.
func (c *kaiCluster) waits(t *testing.T, ns, name, why, limit string) {
	t.Helper()
	until(t, "pod "+name+" waits", func(ctx context.Context) error {
		pod, err := c.admin.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != "" {
			t.Fatalf("known limit gone: %s; correct deploy/examples/README.md (KAI), and this test", limit)
		}
		if told := c.told(ctx, ns, name); !strings.Contains(told, why) {
			return errors.Join(fmt.Errorf("want %q in: %s", why, told), c.kai.Lost())
		}
		return nil
	})
}

// told returns what the conditions and Events of a pod say.
func (c *kaiCluster) told(ctx context.Context, ns, name string) string {
	var all []string
	if pod, err := c.admin.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err == nil {
		for _, condition := range pod.Status.Conditions {
			all = append(all, condition.Message)
		}
	}
	list, err := c.admin.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return err.Error()
	}
	for i := range list.Items {
		all = append(all, list.Items[i].Reason+": "+list.Items[i].Message)
	}
	return strings.Join(all, "\n")
}

func (c *kaiCluster) testVF(t *testing.T) {
	ns := c.run(t, "", "vf", "vf."+driver, kai.AnyQueue)
	if got := c.bound(t, ns, "vf").Status.Allocation.Devices.Results; len(got) != 1 || got[0].Driver != driver {
		t.Errorf("it has %+v, want one device of ours", got)
	}
}

// testNoFinalizer: a claim that KAI allocates can be deleted while its pod has the device.
func (c *kaiCluster) testNoFinalizer(t *testing.T) {
	ns := c.run(t, "", "open", "vf."+driver, kai.AnyQueue)
	if claim := c.bound(t, ns, "open"); slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		t.Errorf("known limit gone: KAI sets the finalizer %s of claims; admission.protectClaims is not needed with it: correct deploy/examples/README.md (KAI), and this test", resourcev1.Finalizer)
	}
}

func (c *kaiCluster) testFinalizer(t *testing.T) {
	addPolicy(t, c.plane, "protect-claims.kata-vfio.dev", "protect-claims-kai.e2e.example.com", "admission: {protectClaims: {enabled: true}}")
	until(t, "the policy is in force", func(ctx context.Context) error {
		got, err := c.admin.ResourceV1().ResourceClaims("default").Create(ctx, claimOf("vf."+driver, false), dryRunCreate())
		if err == nil && len(got.Finalizers) == 0 {
			err = errors.New("it is not")
		}
		return err
	})
	ns := c.run(t, "", "kept", "vf."+driver, kai.AnyQueue)
	claim := c.bound(t, ns, "kept")
	if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		t.Fatalf("the claim has the finalizers %v, want %s among them", claim.Finalizers, resourcev1.Finalizer)
	}
	claims := c.admin.ResourceV1().ResourceClaims(ns)
	if err := claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := claims.Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil || got.DeletionTimestamp == nil || got.Status.Allocation == nil {
		t.Errorf("the claim in use was deleted: %+v, %v", got, err)
	}
}

// testUncounted: KAI knows no GPUs on a node without a count.
func (c *kaiCluster) testUncounted(t *testing.T) {
	ns := c.run(t, "", "uncounted", "gpu."+driver, kai.AnyQueue)
	c.waits(t, ns, "uncounted", "has GPU resources", "KAI allocates GPUs that nothing counts, and kai.countGPUs is not needed")
	c.drop(t, ns)
}

func (c *kaiCluster) testCounted(t *testing.T) {
	ns := c.run(t, "", "counted", "gpu."+driver, kai.AnyQueue)
	if got := c.bound(t, ns, "counted").Status.Allocation.Devices.Results; len(got) != 1 || got[0].Driver != driver {
		t.Errorf("it has %+v, want one GPU of ours", got)
	}
	c.drop(t, ns)
}

// testLimit: of three pods in a queue with a limit of two GPUs, two get one.
func (c *kaiCluster) testLimit(t *testing.T) {
	apply(t, c.plane, "default", kai.Queue("two", "all", 2, 2))
	ns := tenantNamespace(c.t, c.plane) // the first two keep their GPUs for the next tests
	c.run(t, ns, "first", "gpu."+driver, "two")
	c.run(t, ns, "second", "gpu."+driver, "two")
	c.bound(t, ns, "first")
	c.bound(t, ns, "second")
	c.run(t, ns, "third", "gpu."+driver, "two")
	until(t, "the third pod is over the limit", func(ctx context.Context) error {
		if told := c.told(ctx, ns, "third"); !strings.Contains(told, "Limit is 2 GPUs") {
			return errors.New(told)
		}
		return nil
	})
}

// testPair: KAI up to 0.17 has no features of the allocator on, so that nobody gets devices with counters.
func (c *kaiCluster) testPair(t *testing.T) {
	ns := c.run(t, "", "pair", "gpu-vf."+driver, kai.AnyQueue)
	c.waits(t, ns, "pair", "cannot allocate all DRA claims", "KAI allocates devices with counters, such as pairs")
}

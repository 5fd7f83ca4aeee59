//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	daemon "github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// movingClass takes any of our devices, and its pods run in VMs.
const movingClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: moving.e2e.example.com, annotations: {kata-vfio.dev/namespaces: "*"}}
spec:
  selectors:
  - cel: {expression: 'device.driver == "kata-vfio.dev"'}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: e2e-moving}
handler: kata-gpu
`

func movingClaim(name string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: moving.e2e.example.com}}]}}
---
`, name)
}

// movingPod is a pod of a claim with what else its spec has. Nodes without a kubelet get taints after a while.
func movingPod(name, claim, spec string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  runtimeClassName: e2e-moving
  tolerations: [{operator: Exists}]
  resourceClaims: [{name: gpu, resourceClaimName: %s}]
  containers: [{name: main, image: example.com/none:1, resources: {claims: [{name: gpu}]}}]
  %s
---
`, name, claim, spec)
}

// scheduledOn leaves the scheduler one node, which spec.nodeName would pass over the scheduler.
func scheduledOn(node string) string {
	return `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [` +
		node + `]}]}]}}}`
}

// TestAllocationsMove has the real scheduler allocate and the real controller manager reserve and withdraw, and the
// plugin's own code prepare on nodes with a scripted kernel.
func TestAllocationsMove(t *testing.T) {
	p := cluster(t)
	apply(t, p, "default", movingClass)
	t.Cleanup(func() {
		// The test's own context is over by now.
		_, err := p.Kubectl(context.Background(), "delete", "deviceclass/moving.e2e.example.com", "runtimeclass/e2e-moving")
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("AClaimIsPreparedOnTheNodeOfItsAllocationOnly", func(t *testing.T) { testOtherNode(t, p) })
	t.Run("AWithdrawnAllocationGivesItsDeviceBack", func(t *testing.T) { testWithdrawn(t, p) })
}

// testOtherNode: a tenant's second pod is bound to another node by spec.nodeName, and the controller manager reserves the
// claim for it.
func testOtherNode(t *testing.T, p *controlplane.ControlPlane) {
	ns := namespace(t, p)
	here, there := addScripted(t, p, "e2e-moves-a", 0x3b), addScripted(t, p, "e2e-moves-b", 0x3b)
	apply(t, p, ns, movingClaim("one")+movingPod("first", "one", scheduledOn(here.name)))
	reserved(t, p, ns, "one", "first")
	apply(t, p, ns, movingPod("second", "one", "nodeName: "+there.name))
	reserved(t, p, ns, "one", "first", "second")
	deletePod(t, p, ns, "first")
	claim := reserved(t, p, ns, "one", "second")
	devices, problem := there.prepare(claim)
	if len(devices) > 0 || !strings.Contains(problem, "allocated from pool "+here.name) {
		t.Errorf("the other node prepares %v: %s", devices, problem)
	}
	rec, err := there.records.Load(string(claim.UID))
	if now := there.boundTo(0x3b); rec != nil || err != nil || now != "nvidia" {
		t.Errorf("the other node has a record %v (%v), and its GPU is on %s", rec, err, now)
	}
}

// testWithdrawn: the controller manager withdraws the allocation of a claim that nobody uses, and the kubelet, which has
// lost its state, says nothing of it.
func testWithdrawn(t *testing.T, p *controlplane.ControlPlane) {
	ns := namespace(t, p)
	n := addScripted(t, p, "e2e-moves-c", 0x3b, 0x3c)
	apply(t, p, ns, movingClaim("one")+movingPod("first", "one", scheduledOn(n.name)))
	mustPrepare(t, n, reserved(t, p, ns, "one", "first"), "gpu-0000-3b-00-0")
	deletePod(t, p, ns, "first")
	withdrawn(t, p, ns, "one")
	// The next allocation is of the other GPU, since the first has gone to another claim.
	apply(t, p, ns, movingClaim("two")+movingPod("other", "two", scheduledOn(n.name)))
	reserved(t, p, ns, "two", "other")
	apply(t, p, ns, movingPod("again", "one", scheduledOn(n.name)))
	mustPrepare(t, n, reserved(t, p, ns, "one", "again"), "gpu-0000-3c-00-0")
	if former, now := n.boundTo(0x3b), n.boundTo(0x3c); former != "nvidia" || now != "vfio-pci" {
		t.Errorf("the former GPU is on %s, the claim's on %s", former, now)
	}
	deletePod(t, p, ns, "again")
	claim := withdrawn(t, p, ns, "one")
	now, told := time.Now(), lossesByUID{}
	repair := daemon.Repair{
		Client: n.client, Node: n.name, Records: n.records, Orphans: &orphans{n.claims, maintain.New(n.claims.Order(), nil)}, Claims: n.driver,
		Processes: allRun(false), Reporter: n.reporter(), Metrics: n.metrics, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now }, Losses: told,
	}
	repair.Look(t.Context())
	if told[string(claim.UID)] != "its allocation was withdrawn" || n.boundTo(0x3c) != "vfio-pci" {
		t.Errorf("the first look tells %q, and the GPU is on %s", told, n.boundTo(0x3c))
	}
	now = now.Add(time.Hour)
	repair.Look(t.Context())
	if rec, err := n.records.Load(string(claim.UID)); rec != nil || err != nil || n.boundTo(0x3c) != "nvidia" {
		t.Errorf("after the grace there is a record %v (%v), and the GPU is on %s", rec, err, n.boundTo(0x3c))
	}
}

// mustPrepare has the node's kubelet ask for a claim, which gets the one device.
func mustPrepare(t *testing.T, n *scripted, claim *resourcev1.ResourceClaim, name string) {
	t.Helper()
	devices, problem := n.prepare(claim)
	if problem != "" || !slices.Equal(devices, []string{device.NodePool(n.name) + " " + name}) {
		t.Fatalf("claim %s gets %v: %s", claim.Name, devices, problem)
	}
}

// reserved waits until a claim is allocated, and reserved for exactly the pods.
func reserved(t *testing.T, p *controlplane.ControlPlane, ns, name string, pods ...string) (claim *resourcev1.ResourceClaim) {
	t.Helper()
	admin := client(t, p, controlplane.Admin())
	until(t, fmt.Sprintf("claim %s is reserved for %v", name, pods), func(ctx context.Context) (err error) {
		if claim, err = admin.ResourceV1().ResourceClaims(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		var got []string
		for _, r := range claim.Status.ReservedFor {
			got = append(got, r.Name)
		}
		if slices.Sort(got); claim.Status.Allocation == nil || !slices.Equal(got, pods) {
			return fmt.Errorf("it is for %v, allocated: %t", got, claim.Status.Allocation != nil)
		}
		return nil
	})
	// The kubelet asks once the pod is bound.
	until(t, "its pods have their nodes", func(ctx context.Context) error {
		for _, name := range pods {
			if pod, err := admin.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err != nil || pod.Spec.NodeName == "" {
				return errors.Join(err, errors.New("not "+name))
			}
		}
		return nil
	})
	return claim
}

// withdrawn waits until a claim is there without an allocation.
func withdrawn(t *testing.T, p *controlplane.ControlPlane, ns, name string) (claim *resourcev1.ResourceClaim) {
	t.Helper()
	admin := client(t, p, controlplane.Admin())
	until(t, "the allocation of claim "+name+" is withdrawn", func(ctx context.Context) (err error) {
		claim, err = admin.ResourceV1().ResourceClaims(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && claim.Status.Allocation != nil {
			err = errors.New("it is there")
		}
		return err
	})
	return claim
}

// deletePod deletes a pod as by force: there is no kubelet that would see it end.
func deletePod(t *testing.T, p *controlplane.ControlPlane, ns, name string) {
	t.Helper()
	err := client(t, p, controlplane.Admin()).CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if err != nil {
		t.Fatal(err)
	}
}

// orphans are those of a node.
type orphans struct {
	*prepare.Preparer
	*maintain.Maintainer
}

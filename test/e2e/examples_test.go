//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// tenantExample is the example that is for the admin, and makes the namespace for the others.
const tenantExample = "tenant-namespace.yaml"

// netAdminExample has NET_ADMIN in its VM, which Pod Security can't tell from the node's.
const netAdminExample = "vf-pod-network.yaml"

// ownClass is the DeviceClass of tenantExample.
const ownClass = "vf-team-a.example.com"

// examples are the texts of deploy/examples by their files' names.
func examples(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../deploy/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = string(text)
	}
	if all[tenantExample] == "" {
		t.Fatalf("%s is not among %d examples", tenantExample, len(all))
	}
	return all
}

// The namespace of one example takes all the others, by its policies and its Pod Security.
func TestTenantMayApplyTheExamples(t *testing.T) {
	const ns = "team-a"
	p := installed(t)
	admin := client(t, p, controlplane.Admin())
	all, others := examples(t), tenantNamespace(t, p)
	apply(t, p, ns, all[tenantExample])
	t.Cleanup(func() {
		// The test's own context is over by now.
		if err := admin.CoreV1().Namespaces().Delete(context.Background(), ns, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := admin.ResourceV1().DeviceClasses().Delete(context.Background(), ownClass, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	until(t, "the quota is counted", func(ctx context.Context) error {
		quota, err := admin.CoreV1().ResourceQuotas(ns).Get(ctx, "devices", metav1.GetOptions{})
		if err == nil && !cmp.Equal(quota.Spec.Hard, quota.Status.Hard) {
			err = errors.New("it is not")
		}
		return err
	})
	for name, text := range all {
		t.Run(name, func(t *testing.T) {
			if name == tenantExample {
				dryRun(t, p, text)
				return
			}
			if name == netAdminExample {
				_, err := p.KubectlInput(t.Context(), strings.NewReader(text), "apply", "--dry-run=server", "--namespace", ns, "-f", "-")
				if err == nil || !strings.Contains(err.Error(), "NET_ADMIN") {
					t.Errorf("want a refusal by Pod Security, which the example tells of, got %v", err)
				}
				dryRun(t, p, text, "--namespace", tenantNamespace(t, p))
				return
			}
			dryRun(t, p, text, "--namespace", ns)
		})
	}
	t.Run("and name the class that is its own, which others may not", func(t *testing.T) {
		own := claimOf(ownClass, false)
		_, err := admin.ResourceV1().ResourceClaims(ns).Create(t.Context(), own, dryRunCreate())
		wantForbidden(t, err, "")
		until(t, "the API server knows the class", func(ctx context.Context) error {
			if _, err := admin.ResourceV1().ResourceClaims(others).Create(ctx, own, dryRunCreate()); err == nil {
				return errors.New("another tenant may name it")
			}
			return nil
		})
	})
	t.Run("and claim no whole NIC, by the class and by the quota", func(t *testing.T) {
		whole := claimWith(t, "VFIOConfig", nil)
		whole.Spec.Devices.Requests[0].Exactly.DeviceClassName = "pf." + driver
		_, err := admin.ResourceV1().ResourceClaims(ns).Create(t.Context(), whole, dryRunCreate())
		wantForbidden(t, err, "DeviceClass pf.kata-vfio.dev is not granted to namespace "+ns)
		grantWholeFunctions(t, p, ns)
		until(t, "the quota refuses it", func(ctx context.Context) error {
			_, err := admin.ResourceV1().ResourceClaims(ns).Create(ctx, whole, dryRunCreate())
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: devices") {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	})
}

// grantWholeFunctions grants the class pf to a namespace until the test ends. The chart grants it to none.
func grantWholeFunctions(t *testing.T, p *controlplane.ControlPlane, ns string) {
	t.Helper()
	const class, key = "pf." + driver, "kata-vfio.dev/namespaces"
	if _, err := p.Kubectl(t.Context(), "annotate", "--overwrite", "deviceclass", class, key+"="+ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.Kubectl(context.Background(), "annotate", "deviceclass", class, key+"-"); err != nil {
			t.Error(err)
		}
	})
}

// awaitWholeFunctions waits until the API server knows of the grant.
func awaitWholeFunctions(t *testing.T, p *controlplane.ControlPlane, ns string) {
	t.Helper()
	until(t, "the API server takes a claim of a whole function", func(ctx context.Context) error {
		_, err := p.KubectlInput(ctx, strings.NewReader(wholeFunction), "apply", "--dry-run=server", "--namespace", ns, "-f", "-")
		return err
	})
}

// wholeFunction is an example that deploy/examples does not have: the third DeviceClass.
const wholeFunction = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: pf}
spec: {devices: {requests: [{name: pf, exactly: {deviceClassName: pf.kata-vfio.dev}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: pf}
spec:
  runtimeClassName: kata-gpu
  resourceClaims: [{name: pf, resourceClaimName: pf}]
  containers: [{name: main, image: example.com/none:1, resources: {claims: [{name: pf}]}}]
`

// Devices that have no attributes come first: where an expression errs over one, the pod is not scheduled. So do devices
// of another driver that look like ours.
func TestSchedulerGivesTheExamplesTheirDevices(t *testing.T) {
	const node = "e2e-examples"
	p := installed(t)
	ns := tenantNamespace(t, p)
	admin := client(t, p, controlplane.Admin())
	addFitNode(t, p, node)
	const before = "a-" + foreign // the scheduler takes drivers by their names
	published(t, p, admin.ResourceV1().ResourceSlices(), slice(before, node, node,
		resourcev1.Device{Name: "bare"}, pretender("gpu"), pretender("vf"), pretender("pf"), pretender("gpu-vf"),
	))
	published(t, p, pluginOn(t, p, node).ResourceV1().ResourceSlices(), slice(driver, node, node,
		resourcev1.Device{Name: "bare"},
		typed("plain-gpu-1", "gpu"), typed("plain-gpu-2", "gpu"), typed("plain-pf-1", "pf"),
		typed("plain-vf-1", "vf"), typed("plain-vf-2", "vf"), typed("plain-vf-3", "vf"), typed("plain-vf-4", "vf"),
		full("full-gpu-1", "gpu"), full("full-gpu-2", "gpu"), full("full-gpu-3", "gpu"), full("full-vf-1", "vf"), full("full-vf-2", "vf"),
		sliceOf("0000:13:00.0", "lone-slice-1"), sliceOf("0000:14:00.0", "card-slice-1"), sliceOf("0000:14:00.0", "card-slice-2"),
		sliceOf("0000:14:00.0", "card-slice-3"), sliceOf("0000:14:00.0", "card-slice-4"),
		typed("plain-pair-1", "gpu-vf"), placed("placed-gpu-1", "gpu"), placed("placed-vf-1", "vf"),
	))
	for name, text := range examples(t) {
		if name != tenantExample && !slices.Contains(workloadExamples(), name) {
			apply(t, p, ns, text)
		}
	}
	grantWholeFunctions(t, p, ns)
	awaitWholeFunctions(t, p, ns)
	apply(t, p, ns, wholeFunction)
	until(t, "all pods have a node", func(ctx context.Context) error {
		if left := waiting(ctx, admin, ns); left != "" {
			return errors.New(left)
		}
		return nil
	})
	want := map[string][]string{
		"gpu": {"full-gpu"}, "direct": {"plain-gpu"}, "extended-resource": {"plain-gpu"}, "vf": {"plain-vf"}, "vf-endpoint": {"plain-vf"}, "pf": {"plain-pf"},
		"gpu-and-vf": {"full-gpu", "full-vf"}, "gpu-and-vf-network": {"full-gpu", "full-vf"}, "vf-network": {"plain-vf"}, "vf-network-by-policy": {"plain-vf"},
		"gpu-and-vf-nearest": {"placed-gpu", "placed-vf"}, "gpu-vf-pair": {"plain-pair"},
		"gpu-slices-of-one-card": {"card-slice", "card-slice", "card-slice", "card-slice"},
	}
	if diff := cmp.Diff(want, devicesByPod(t, admin, ns)); diff != "" {
		t.Errorf("the pods' devices differ (-want +got):\n%s", diff)
	}
}

// workloadExamples are the examples whose pods a controller makes.
func workloadExamples() []string {
	return []string{"gpu-job.yaml", "gpu-deployment.yaml", "gpu-notebook.yaml"}
}

// TestSchedulerGivesEachPodOfAWorkloadAGPU: each pod that a Job, a Deployment or a StatefulSet makes has a claim of its own.
func TestSchedulerGivesEachPodOfAWorkloadAGPU(t *testing.T) {
	const node, home = "e2e-workloads", `{apiVersion: v1, kind: PersistentVolume, metadata: {name: e2e-workloads}, spec: {capacity: {storage: 10Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /tmp/e2e-workloads}}}`
	p := installed(t)
	ns := tenantNamespace(t, p)
	admin := client(t, p, controlplane.Admin())
	addFitNode(t, p, node)
	published(t, p, pluginOn(t, p, node).ResourceV1().ResourceSlices(), slice(driver, node, node,
		typed("gpu-1", "gpu"), typed("gpu-2", "gpu"), typed("gpu-3", "gpu"), typed("gpu-4", "gpu"),
	))
	apply(t, p, ns, home)
	t.Cleanup(func() {
		// The test's own context is over by now.
		if err := admin.CoreV1().PersistentVolumes().Delete(context.Background(), node, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	all := examples(t)
	for _, name := range workloadExamples() {
		apply(t, p, ns, all[name])
	}
	until(t, "four pods have a GPU each", func(ctx context.Context) error {
		list, err := admin.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		devices := map[string]bool{}
		for i := range list.Items {
			if given := list.Items[i].Status.Allocation; given != nil {
				devices[given.Devices.Results[0].Device] = true
			}
		}
		if left := waiting(ctx, admin, ns); len(devices) != 4 || left != "" {
			return fmt.Errorf("%d GPUs are given; %s", len(devices), left)
		}
		return nil
	})
}

// typed is a device that has its type for an attribute, full one with all that the examples ask for.
func typed(name, kind string) resourcev1.Device {
	return resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": {StringValue: &kind}}}
}

func full(name, kind string) resourcev1.Device {
	d := typed(name, kind)
	d.Attributes["isolated"] = resourcev1.DeviceAttribute{BoolValue: new(true)}
	d.Attributes["resource.kubernetes.io/pcieRoot"] = resourcev1.DeviceAttribute{StringValue: new("pci0000:3b")}
	return d
}

// placed is a device with all that says where it is.
func placed(name, kind string) resourcev1.Device {
	d := typed(name, kind)
	d.Attributes["pcieSwitch"] = resourcev1.DeviceAttribute{StringValue: new("0000:5d:00.0")}
	d.Attributes["resource.kubernetes.io/pcieRoot"] = resourcev1.DeviceAttribute{StringValue: new("pci0000:5c")}
	d.Attributes["resource.kubernetes.io/numaNode"] = resourcev1.DeviceAttribute{IntValue: new(int64(1))}
	return d
}

// sliceOf is a slice of a card.
func sliceOf(card, name string) resourcev1.Device {
	d := typed(name, "gpuvf")
	d.Attributes["card"] = resourcev1.DeviceAttribute{StringValue: &card}
	d.Attributes["boundary"] = resourcev1.DeviceAttribute{StringValue: new("hardwareSlice")}
	return d
}

// pretender is another driver's device that has the type of one of ours.
func pretender(kind string) resourcev1.Device {
	return resourcev1.Device{Name: "false-" + kind, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		driver + "/type": {StringValue: &kind},
	}}
}

// waiting tells why pods of a namespace have no node; it is empty when all have one.
func waiting(ctx context.Context, admin *kubernetes.Clientset, ns string) string {
	list, err := admin.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var left []string
	for _, one := range list.Items {
		why := ""
		for _, c := range one.Status.Conditions {
			if c.Type == corev1.PodScheduled {
				why = c.Message
			}
		}
		if one.Spec.NodeName == "" {
			left = append(left, one.Name+": "+why)
		}
	}
	return strings.Join(left, "\n")
}

// devicesByPod are the devices that pods have by their claims, sorted, without the number at their end.
func devicesByPod(t *testing.T, admin *kubernetes.Clientset, ns string) map[string][]string {
	t.Helper()
	list, err := admin.ResourceV1().ResourceClaims(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	devices := map[string][]string{}
	for _, c := range list.Items {
		if c.Status.Allocation == nil || len(c.Status.ReservedFor) != 1 {
			t.Errorf("claim %s is not allocated to one pod: %+v", c.Name, c.Status)
			continue
		}
		pod := c.Status.ReservedFor[0].Name
		for _, r := range c.Status.Allocation.Devices.Results {
			devices[pod] = append(devices[pod], strings.TrimRight(r.Device, "-0123456789"))
		}
		slices.Sort(devices[pod])
	}
	return devices
}

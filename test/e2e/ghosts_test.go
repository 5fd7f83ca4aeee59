//go:build e2e

package e2e

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	daemon "github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// TestVMWithoutAClaimTakesNothingFromOthers: a tenant's claim leaves the API while its VM runs. The scheduler takes the device for free
// until the plugin sees the loss, and gives the next claim another one from then on.
func TestVMWithoutAClaimTakesNothingFromOthers(t *testing.T) {
	p := cluster(t)
	apply(t, p, "default", movingClass)
	t.Cleanup(func() {
		_, _ = p.Kubectl(context.Background(), "delete", "deviceclass/moving.e2e.example.com", "runtimeclass/e2e-moving") // t's context is over
	})
	admin := client(t, p, controlplane.Admin())
	for name, vanish := range map[string]func(*testing.T, *kubernetes.Clientset, *controlplane.ControlPlane, string){
		"by-force": deletesPodByForce, "by-finalizer": removesFinalizer,
	} {
		t.Run(name, func(t *testing.T) {
			tenant, victims := namespace(t, p), namespace(t, p)
			n := addScripted(t, p, "e2e-ghost-"+name, 0x3b, 0x3c)
			apply(t, p, tenant, movingClaim("one")+movingPod("first", "one", scheduledOn(n.name)))
			mustPrepare(t, n, reserved(t, p, tenant, "one", "first"), "gpu-0000-3b-00-0")
			vanish(t, admin, p, tenant)
			runningVM(t, n).Look(t.Context())
			if len(n.withdrawn) != 1 {
				t.Fatalf("lost claims: %v", n.withdrawn)
			}
			n.publish()
			until(t, "the device is tainted", func(ctx context.Context) error { return isTainted(ctx, admin, n.name, "gpu-0000-3b-00-0") })
			apply(t, p, victims, movingClaim("honest")+movingPod("honest", "honest", scheduledOn(n.name)))
			mustPrepare(t, n, reserved(t, p, victims, "honest", "honest"), "gpu-0000-3c-00-0")
		})
	}
}

// runningVM is a repair of a node whose only claim has a VM that runs.
func runningVM(t *testing.T, n *scripted) *daemon.Repair {
	t.Helper()
	records, errs := n.records.List()
	if len(records) != 1 || len(errs) != 0 {
		t.Fatalf("records %v, errors %v", records, errs)
	}
	own := *records[0]
	own.Sandbox = &journal.Sandbox{ID: "s1", VMM: journal.Process{PID: 4711}}
	if err := n.records.Save(&own); err != nil {
		t.Fatal(err)
	}
	return &daemon.Repair{
		Client: n.client, Node: n.name, Records: n.records, Orphans: &orphans{n.claims, maintain.New(n.claims.Order(), nil)}, Claims: n.driver,
		Processes: allRun(true), Reporter: n.reporter(), Metrics: n.metrics, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Losses: n.withdrawn,
	}
}

func deletesPodByForce(t *testing.T, admin *kubernetes.Clientset, p *controlplane.ControlPlane, ns string) {
	t.Helper()
	if err := admin.CoreV1().Pods(ns).Delete(t.Context(), "first", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	withdrawn(t, p, ns, "one")
}

func removesFinalizer(t *testing.T, admin *kubernetes.Clientset, _ *controlplane.ControlPlane, ns string) {
	t.Helper()
	claims := admin.ResourceV1().ResourceClaims(ns)
	if _, err := claims.Patch(t.Context(), "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := claims.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the claim is gone", func(ctx context.Context) error {
		_, err := claims.Get(ctx, "one", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// isTainted returns an error unless the node's slices have a device with a taint.
func isTainted(ctx context.Context, admin *kubernetes.Clientset, node, device string) error {
	list, err := admin.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorNodeName + "=" + node})
	if err != nil {
		return err
	}
	for i := range list.Items {
		for _, d := range list.Items[i].Spec.Devices {
			if d.Name == device && len(d.Taints) > 0 {
				return nil
			}
		}
	}
	return errors.New("it is not")
}

// allRun says that each process of the node runs, or that none does.
type allRun bool

func (a allRun) IsAlive(journal.Process) bool { return bool(a) }

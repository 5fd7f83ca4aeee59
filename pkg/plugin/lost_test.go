package plugin_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// ghost is a node on which a VM has a GPU whose claim no longer exists at the API server, and another GPU is free.
func ghost(t *testing.T) *plugintest.Node {
	t.Helper()
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	n.Kernel.AddGPU(0x3c)
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	rec, err := n.Records.Load("uid-1")
	if err != nil {
		t.Fatal(err)
	}
	own := *rec
	own.Sandbox = &journal.Sandbox{ID: "s1", VMM: journal.Process{PID: 4711}}
	if err := n.Records.Save(&own); err != nil {
		t.Fatal(err)
	}
	return n
}

// repairs looks for the lost claims of a node whose API server has none.
func repairs(n *plugintest.Node, withdrawn lossesByUID) *plugin.Repair {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}})
	return &plugin.Repair{
		Client: client, Node: "worker-1", Records: n.Records, Orphans: n.Claims, NameTenants: true,
		Claims: unprepares(func(ctx context.Context, ref plan.Ref, check func(context.Context, *journal.Record) error) error {
			_, err := n.Claims.UnprepareIf(ctx, ref.UID, check)
			return err
		}),
		Losses:    withdrawn,
		Processes: onlyRuns(4711), Metrics: n.Metrics, Log: plugintest.Quiet(), Now: time.Now,
		Reporter: dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()}),
	}
}

// TestDeviceOfALostClaimIsTainted: at the first look, as long as the VM has it, and nothing else is.
func TestDeviceOfALostClaimIsTainted(t *testing.T) {
	n, r, withdrawn := ghost(t), &plugintest.Recorder{}, lossesByUID{}
	n.Facts.Losses = withdrawn
	published := func(when string, taints ...string) {
		t.Helper()
		n.Publish(r)
		if diff := cmp.Diff(map[string][]string{"gpu-0000-3b-00-0": taints, "gpu-0000-3c-00-0": {}}, r.Devices()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	published("before the loss is seen", []string{}...)
	repair := repairs(n, withdrawn)
	repair.Look(t.Context())
	published("when it is seen", "not-preparable")
	found, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_lost_device_seconds")
	if len(found) != 1 {
		t.Errorf("the metrics have %v", found)
	}
	repair.Processes = onlyRuns(0)
	now := time.Now().Add(time.Hour)
	repair.Now = func() time.Time { return now }
	repair.Look(t.Context())
	published("when the VM has ended", []string{}...)
	repair.Look(t.Context())
	if found, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_lost_device_seconds"); len(found) != 0 {
		t.Errorf("the metrics have %v once it is released", found)
	}
}

// TestDeviceThatAnotherClaimHasIsTainted: one victim shows it to the scheduler, for as long as the record lasts, and a look for lost claims
// follows at once.
func TestDeviceThatAnotherClaimHasIsTainted(t *testing.T) {
	n, r, asked := ghost(t), &plugintest.Recorder{}, new(looks)
	n.Attempts.Holders = asked
	req, err := claim.Decode(plugintest.Allocated("uid-victim", "gpu-0000-3b-00-0"), "kata-vfio.dev")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = n.Claims.Prepare(t.Context(), req); err == nil {
		t.Fatal("the victim got the device")
	}
	n.Attempts.Failed(err)
	n.Publish(r)
	if taints := r.Devices(); len(taints["gpu-0000-3b-00-0"]) != 1 || len(taints["gpu-0000-3c-00-0"]) != 0 || *asked != 1 {
		t.Errorf("the taints are %v; looked %d times", taints, *asked)
	}
	if _, err := n.Claims.UnprepareIf(t.Context(), "uid-1", nil); err != nil {
		t.Fatal(err)
	}
	n.Publish(r)
	if taints := r.Devices()["gpu-0000-3b-00-0"]; len(taints) != 0 {
		t.Errorf("the device of a record that has ended has %v", taints)
	}
}

// looks counts the looks for lost claims.
type looks int

func (*looks) Blocks(pci.Address) bool { return false }
func (l *looks) LookForLost()          { *l++ }

// TestRefusedClaimsMakeTheRepairLook: soon, but not for each of them.
func TestRefusedClaimsMakeTheRepairLook(t *testing.T) {
	repair := repairs(plugintest.New(t), lossesByUID{}) // its reporter's queue outlives a bubble
	synctest.Test(t, func(t *testing.T) {
		looks, soon := 0, make(chan struct{}, 1)
		repair.Soon, repair.Orphans = soon, counted(func() { looks++ })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- repair.Run(ctx) }()
		time.Sleep(time.Minute) // the first look
		synctest.Wait()
		before := looks
		for range 100 {
			soon <- struct{}{}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if got := looks - before; before != 1 || got < 3 || got > 6 {
			t.Errorf("%d looks at first, and %d in 100 s with refusals", before, got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// counted counts the looks of a repair.
type counted func()

func (c counted) SweepSpecs(context.Context) ([]string, error) {
	c()
	return nil, nil
}

func (c counted) GiveBackOrphans(context.Context) ([]maintain.Orphan, error) { return nil, nil }

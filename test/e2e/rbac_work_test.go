//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	model "github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	service "github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// publishes has the plugin create, change and delete its node's slices.
func publishes(t *testing.T, plugin, admin *kubernetes.Clientset, node string) {
	helper := serve(t, plugin, node)
	for _, want := range [][]resourcev1.Device{{{Name: "one"}}, {{Name: "one"}, {Name: "two"}}, nil} {
		pools := map[string]resourceslice.Pool{}
		if want != nil {
			pools[node] = resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: want}}}
		}
		if err := helper.PublishResources(t.Context(), resourceslice.DriverResources{Pools: pools}); err != nil {
			t.Fatal(err)
		}
		until(t, fmt.Sprintf("the node has %d devices", len(want)), func(ctx context.Context) error {
			list, err := admin.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
				FieldSelector: "spec.driver=" + driver + ",spec.nodeName=" + node,
			})
			if err != nil {
				return err
			}
			var got []resourcev1.Device
			for _, s := range list.Items {
				got = append(got, s.Spec.Devices...)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
		if len(want) == 1 {
			saysHealth(t, plugin, node)
		}
		if len(want) > 0 {
			wantHealth(t, admin, node) // also after the slice has changed
		}
	}
}

// saysHealth has the plugin say how its node is.
func saysHealth(t *testing.T, plugin *kubernetes.Clientset, node string) {
	t.Helper()
	w := service.HealthWatch{
		Node: node, Slices: plugin.ResourceV1().ResourceSlices(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now,
		Source: &service.HealthSource{
			NRI: func() bool { return true }, Refuses: func() *plan.NotReady { return nil }, Bootstrap: neverVerified{},
			Hanging: func() []service.Hanging { return nil }, Claims: metrics.New(plugintest.NoRecords{}, nothingStuck), Disks: journal.Reserves{},
		},
	}
	w.Look(t.Context())
}

// neverVerified is a node that bootstrap never looked at.
type neverVerified struct{}

func (neverVerified) Read() (*state.Record, error) { return nil, fs.ErrNotExist }

// wantHealth checks that the node's slice says how the node is.
func wantHealth(t *testing.T, admin *kubernetes.Clientset, node string) {
	t.Helper()
	list, err := admin.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + driver + ",spec.nodeName=" + node})
	if err != nil {
		t.Fatal(err)
	}
	var c model.Cluster
	for i := range list.Items {
		c.Add(&list.Items[i])
	}
	if h := c.Health(node); h == nil || !h.NRI {
		t.Errorf("the node's health is %+v, want one with NRI, in %d slices", h, len(list.Items))
	}
}

// serve registers the plugin, as its command does, with a kubelet that never calls.
func serve(t *testing.T, plugin *kubernetes.Clientset, node string) *kubeletplugin.Helper {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "registry"), 0o755); err != nil {
		t.Fatal(err)
	}
	helper, err := dra.Kubelet{
		Client: plugin, NodeName: node, PluginDir: filepath.Join(dir, "plugin"), RegistryDir: filepath.Join(dir, "registry"),
		MetadataCDIDir: filepath.Join(dir, "cdi"), GRPCVerbosity: -1,
	}.Register(t.Context(), dra.NewPlugin(dra.PluginConfig{
		Log: slog.New(slog.DiscardHandler), Health: dra.NewHealth(), Metrics: metrics.New(plugintest.NoRecords{}, nothingStuck), Changes: plugintest.NewWakes(), Fatal: func(err error) { t.Error(err) },
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(helper.Stop)
	return helper
}

func nothingStuck() int { return 0 }

// reports has the plugin tell twice of a refused claim: what is told twice is a change of the first event.
func reports(t *testing.T, plugin, admin *kubernetes.Clientset, node, ns, name string) {
	recorder, err := dra.NewRecorder(t.Context(), plugin, node)
	if err != nil {
		t.Fatal(err)
	}
	reporter := dra.NewReporter(dra.ReporterConfig{Client: plugin, Recorder: recorder, Log: slog.New(slog.DiscardHandler)})
	go func() { _ = reporter.Run(t.Context()) }() // it has no error to return
	got, err := plugin.ResourceV1().ResourceClaims(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reporter.Refused(got, errors.New("no such device"), nil)
	until(t, "the claim's status tells", func(ctx context.Context) error {
		got, err := admin.ResourceV1().ResourceClaims(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(got.Status.Devices, func(d resourcev1.AllocatedDeviceStatus) bool {
			return d.Driver == driver && meta.IsStatusConditionFalse(d.Conditions, dra.ConditionReady)
		}) {
			err = fmt.Errorf("it says %+v", got.Status.Devices)
		}
		return err
	})
	awaitEvents(t, admin, ns, func(*eventsv1.Event) bool { return true })
	reporter.Refused(got, errors.New("no such device"), nil)
	awaitEvents(t, admin, ns, func(e *eventsv1.Event) bool { return e.Series != nil })
}

// awaitEvents waits for an event of the plugin's on a claim, and one on a pod.
func awaitEvents(t *testing.T, admin *kubernetes.Clientset, ns string, are func(*eventsv1.Event) bool) {
	t.Helper()
	until(t, "claim and pod have their events", func(ctx context.Context) error {
		list, err := admin.EventsV1().Events(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, e := range list.Items {
			if e.ReportingController == driver && are(&e) {
				got = append(got, e.Regarding.Kind)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"Pod", "ResourceClaim"}, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

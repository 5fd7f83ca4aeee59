package dra_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// writes counts the writes of slices by the second, and the reads before them.
type writes struct {
	begin time.Time
	mu    sync.Mutex // guards below
	by    []int
	asked []int
}

// PublishResources implements [dra.Slices].
func (w *writes) PublishResources(context.Context, resourceslice.DriverResources) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[int(time.Since(w.begin).Seconds())]++
	return nil
}

// Published implements [dra.Cluster].
func (w *writes) Published(context.Context) (map[publish.Allocated]publish.Listed, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[int(time.Since(w.begin).Seconds())]++
	return nil, nil
}

// Claimed implements [dra.Cluster].
func (w *writes) Claimed(context.Context) (map[publish.Allocated]bool, error) { return nil, nil }

// MayListClaims implements [dra.Cluster].
func (w *writes) MayListClaims(context.Context) (bool, error) { return true, nil }

// bare is a node of which only the snapshot decides.
type bare struct{}

func (bare) PlanNode(ctx context.Context, snap *device.Snapshot) (plan.Node, error) {
	return plan.Node{Snapshot: snap, Selection: nodeconfig.Select(nil, snap)}, nil
}
func (bare) Failing(pci.Address) []rule.Failure          { return nil }
func (bare) Drains(*device.Snapshot) []maintain.Draining { return nil }
func (bare) Lost() map[string]string                     { return nil }
func (bare) Versions() publish.Versions                  { return publish.Versions{} }

// TestPublisherSpreadsTheFirstWritesOfManyNodes, and asks nothing before. Claims do not wait.
func TestPublisherSpreadsTheFirstWritesOfManyNodes(t *testing.T) {
	const nodes = 500
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	snap := n.Snapshot()
	synctest.Test(t, func(t *testing.T) {
		w := &writes{begin: time.Now(), by: make([]int, 11), asked: make([]int, 11)}
		for range nodes {
			changed, health := plugintest.NewWakes(), dra.NewHealth()
			p := dra.NewPublisher(dra.PublisherConfig{
				NodeName: "worker-1", Node: bare{}, Records: plugintest.NoRecords{}, Health: health, Metrics: metrics.New(plugintest.NoRecords{}, func() int { return 0 }),
				Cluster: w, Spread: dra.StartSpread, Changes: changed,
			})
			publishTo(t, p, w, snap)
			if p.Attributes("gpu-0000-3b-00-0") == nil || health.Ready() == "" {
				t.Fatal("a claim has to wait for the first write, or the plugin is ready before it")
			}
			go func() {
				<-changed
				publishTo(t, p, w, snap)
			}()
		}
		time.Sleep(dra.StartSpread)
		synctest.Wait()
		for what, by := range map[string][]int{"write": w.by, "ask": w.asked} {
			all := 0
			for second, n := range by {
				all += n
				if n > nodes/5 {
					t.Errorf("%d of %d nodes %s in second %d", n, nodes, what, second)
				}
			}
			if all != nodes {
				t.Errorf("%d of %d nodes %s", all, nodes, what)
			}
		}
	})
}

func publishTo(t *testing.T, p *dra.Publisher, slices dra.Slices, snap *device.Snapshot) {
	t.Helper()
	if err := p.Publish(t.Context(), slices, snap); err != nil {
		t.Error(err)
	}
}

// TestPrepareAsksLessOftenTheLongerTheAPIServerIsAway, and not at the same time as others do.
func TestPrepareAsksLessOftenTheLongerTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := map[time.Duration]bool{}
		for range 5 {
			client, begin := plugintest.Cluster(), time.Now()
			var asked []time.Duration
			client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked = append(asked, time.Since(begin))
				return true, nil, errors.New("dial tcp: connection refused")
			})
			reporter := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()})
			go func() { _ = reporter.Run(t.Context()) }() // it has no error to return
			d := dra.NewPlugin(dra.PluginConfig{
				Claims: slow{}, Gate: plugintest.Gate(client), Health: dra.NewHealth(), Log: plugintest.Quiet(), Changes: plugintest.NewWakes(), Fatal: func(error) {},
				Reporter: reporter, Metrics: metrics.New(plugintest.NoRecords{}, func() int { return 0 }),
			})
			ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
			results, _ := d.PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")})
			cancel()
			if results["uid-1"].Err == nil {
				t.Error("prepared without the API server")
			}
			if n := len(asked); n < 8 || n > 20 {
				t.Errorf("asked %d times in 43 s: %v", n, asked)
			}
			times[asked[1]] = true
		}
		if len(times) < 4 {
			t.Errorf("the nodes ask again at the same times: %v", times)
		}
	})
}

package plugin_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestLooksOfManyNodesAreSpread over the pause, and stay so.
func TestLooksOfManyNodesAreSpread(t *testing.T) {
	const nodes = 600
	for name, loop := range map[string]func(context.Context, func(context.Context)) error{
		"statuses": func(ctx context.Context, look func(context.Context)) error {
			return plugin.EverySpread(ctx, time.Minute, look)
		},
		"orphans": orphanLoop,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				begin, looks, first := time.Now(), make(chan time.Duration, 10*nodes), map[time.Duration]int{}
				for range nodes {
					own := 0
					go func() {
						err := loop(ctx, func(context.Context) {
							if own++; own == 1 {
								looks <- time.Since(begin)
							}
						})
						if err != nil {
							t.Error(err)
						}
					}()
				}
				time.Sleep(time.Minute)
				cancel()
				synctest.Wait()
				if len(looks) != nodes {
					t.Errorf("%d of %d nodes looked in a minute", len(looks), nodes)
				}
				for range len(looks) {
					first[(<-looks).Truncate(time.Second)]++
				}
				for second, n := range first {
					if n > nodes/10 {
						t.Errorf("%d of %d nodes look first after %s", n, nodes, second)
					}
				}
			})
		})
	}
}

// orphanLoop runs the loop of the looks for orphans, whose only look is at the records.
func orphanLoop(ctx context.Context, look func(context.Context)) error {
	repair := &plugin.Repair{
		Records: seenJournal(func() { look(ctx) }), Orphans: orphanList(nil),
		Metrics: metrics.New(plugintest.NoRecords{}, func() int { return 0 }), Log: plugintest.Quiet(), Now: time.Now,
	}
	return repair.Run(ctx)
}

// seenJournal sees each look at an empty journal.
type seenJournal func()

func (s seenJournal) List() ([]*journal.Record, []error) {
	s()
	return nil, nil
}

// TestRepairReadsTheCacheUntilSomethingIsMissing: a read from etcd for each claim of each node would add up.
func TestRepairReadsTheCacheUntilSomethingIsMissing(t *testing.T) {
	const cached, fresh = "0", ""
	worker, claim := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}, plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	for name, tt := range map[string]struct {
		client *fake.Clientset
		want   []string
	}{
		"there": {fake.NewClientset(worker, claim), []string{cached}},
		"gone":  {fake.NewClientset(worker), []string{cached, fresh}},
	} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			n.Kernel.AddGPU(0x3b)
			n.Prepare("uid-1", "gpu-0000-3b-00-0")
			repair := plugin.Repair{
				Client: tt.client, Node: "worker-1", Records: n.Records, Orphans: n.Claims, Metrics: n.Metrics, Log: plugintest.Quiet(), Now: time.Now,
				Reporter: dra.NewReporter(dra.ReporterConfig{Client: tt.client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()}),
			}
			repair.Look(t.Context())
			var got []string
			for _, a := range tt.client.Actions() {
				if get, ok := a.(k8stesting.GetActionImpl); ok && a.GetResource().Resource == "resourceclaims" {
					got = append(got, get.GetOptions.ResourceVersion)
				}
			}
			if len(got) != len(tt.want) || got[len(got)-1] != tt.want[len(got)-1] || got[0] != cached {
				t.Errorf("read at %q, want %q", got, tt.want)
			}
		})
	}
}

package dra_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// slow is work that goes on until its context ends.
type slow struct{}

func (slow) Prepare(ctx context.Context, _ *claim.Request) (*journal.Record, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (slow) Refused(context.Context, *claim.Request, error) error { return nil }

func (slow) UnprepareIf(ctx context.Context, _ string, _ func(context.Context, *journal.Record) error) (prepare.Release, error) {
	<-ctx.Done()
	return prepare.Release{}, context.Cause(ctx)
}

// TestAnswerComesInTime: the kubelet gives a call 45 seconds. What takes longer
// ends a little earlier, so that the kubelet reads the reason and not that its
// own deadline is over.
func TestAnswerComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := plugintest.Cluster()
		reporter := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()})
		go func() { _ = reporter.Run(t.Context()) }() // it has no error to return
		d := dra.NewPlugin(dra.PluginConfig{
			Claims: slow{}, Gate: plugintest.Gate(client), Health: dra.NewHealth(), Log: plugintest.Quiet(), Changes: plugintest.NewWakes(), Fatal: func(error) {},
			Reporter: reporter, Metrics: metrics.New(plugintest.NoRecords{}, func() int { return 0 }),
		})
		for name, call := range map[string]func(context.Context) error{
			"prepare": func(ctx context.Context) error {
				results, _ := d.PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")})
				return results["uid-1"].Err
			},
			"unprepare": func(ctx context.Context) error {
				errs, _ := d.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{{UID: "uid-1"}})
				return errs["uid-1"]
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
			begin := time.Now()
			err := call(ctx)
			if left := 45*time.Second - time.Since(begin); err == nil || left < time.Second || left > 5*time.Second {
				t.Errorf("%s: %v with %s left", name, err, left)
			}
			cancel()
		}
	})
}

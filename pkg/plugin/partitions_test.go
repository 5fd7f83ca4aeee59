package plugin_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// reactivated has the results of the next looks.
type reactivated []node.Reactivated

func (r *reactivated) Reactivate(context.Context) ([]node.Reactivated, error) { return *r, nil }

// TestLostPartitionIsReported: in the claim's status and in an Event, once, until the partition is active again. An instance of the plugin that
// starts meanwhile says so again, and the status is right after it, too.
func TestLostPartitionIsReported(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := plugintest.New(t)
			n.Kernel.AddGPU(0x3b)
			c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
			n.Prepare("uid-1", "gpu-0000-3b-00-0")
			rec, err := n.Records.Load("uid-1")
			if err != nil {
				t.Fatal(err)
			}
			client, events, results := plugintest.Cluster(c), &plugintest.EventLog{}, &reactivated{}
			start := func() (*plugin.Partitions, *dra.StatusSync) {
				r := dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: events, Log: plugintest.Quiet()})
				go func() { _ = r.Run(t.Context()) }() // it has no error to return
				p := &plugin.Partitions{Node: results, Reporter: r, Attributes: n.Publisher.Attributes, Log: plugintest.Quiet()}
				return p, &dra.StatusSync{Reporter: r, Records: n.Records, Attributes: n.Publisher.Attributes, Lost: p.Lost}
			}
			looks := func(p *plugin.Partitions, s *dra.StatusSync, want string) {
				t.Helper()
				for range 2 {
					time.Sleep(time.Minute)
					p.Look(t.Context())
					s.Look(t.Context())
					synctest.Wait()
				}
				got, err := client.ResourceV1().ResourceClaims(c.Namespace).Get(t.Context(), c.Name, metav1.GetOptions{})
				if err != nil || len(got.Status.Devices) != 1 {
					t.Fatalf("status %+v, %v", got.Status.Devices, err)
				}
				if diff := cmp.Diff([]string{want, "Isolated=Unknown (NotJudged)", "Reset=True (MemoryNotChecked)"}, plugintest.Conditions(got.Status.Devices[0])); diff != "" {
					t.Errorf("restarts: %t (-want +got):\n%s", restarts, diff)
				}
			}
			p, s := start()
			looks(p, s, "Ready=True (Prepared)")
			*results = reactivated{{Record: rec, Err: &bind.NotActivatedError{Reason: rule.PartitionNotActivated, Err: errors.New("its VM runs")}}}
			looks(p, s, "Ready=False (PartitionNotActivated)")
			if restarts {
				p, s = start()
			}
			*results = nil
			looks(p, s, "Ready=True (Prepared)")
			events.Want(t, "ResourceClaim team-a/claim-uid-1 Warning PartitionNotActivated", "Pod team-a/train Warning PartitionNotActivated")
		})
	}
}

package dra_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// sanitizes has the node's GPUs sanitized before each claim.
func sanitizes(c *prepare.Config) {
	c.Node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
		Match:    v1alpha1.DeviceMatch{Types: []string{"gpu"}},
		Sanitize: &v1alpha1.SanitizeRule{Profile: "memory", When: v1alpha1.SanitizeBeforeClaim},
	}}}
	c.Node.Default()
	c.Sanitizers = &v1alpha1.Sanitizers{Namespace: "stages", DeviceClass: "stage", Profiles: []v1alpha1.Sanitizer{{Name: "memory"}}}
}

// TestDeviceIsTaintedUntilItsStage follows the taint, and what the next tenant reads in its claim.
func TestDeviceIsTaintedUntilItsStage(t *testing.T) {
	n := plugintest.New(t)
	gpu := n.Kernel.AddGPU(0x3b)
	n.Reopen(sanitizes)
	const name = "gpu-0000-3b-00-0"
	taints := func(want ...string) { // by their keys
		t.Helper()
		var r plugintest.Recorder
		n.Publish(&r)
		if diff := cmp.Diff(want, r.Devices()[name], cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("taints (-want +got):\n%s", diff)
		}
	}
	taints("sanitizing")
	refused := plugintest.Allocated("uid-0", name)
	if answer := plugintest.Serve(t, n, n.Claims, "", refused).Prepare(refused)["uid-0"]; !strings.Contains(answer.Error, "(NotSanitized)") {
		t.Errorf("before the stage: got %q, want a refusal with NotSanitized", answer.Error)
	}

	snap := n.Snapshot()
	f, _ := snap.Function(gpu)
	proof := journal.SanitizeProof{
		Address: gpu, Identity: snap.Identify(f), Profile: "memory", Image: "sha256:0123", Time: "2026-11-28T06:00:00Z",
		Checks: []sanitize.Check{{Name: "bar0", Method: "FillVerifyZeroVerify", Verdict: sanitize.Clean, Bytes: 4096}},
	}
	if err := n.Records.MarkSanitized(t.Context(), proof); err != nil {
		t.Fatal(err)
	}
	taints()
	c := plugintest.Allocated("uid-1", name)
	k := plugintest.Serve(t, n, n.Claims, "", c)
	if answer := k.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	sanitized := meta.FindStatusCondition(k.Status(c)[0].Conditions, "Sanitized")
	if want := "gpu-0000-3b-00-0 by profile memory at 2026-11-28T06:00:00Z: FillVerifyZeroVerify of bar0"; sanitized == nil || sanitized.Message != want {
		t.Errorf("condition Sanitized: got %+v, want the message %q", sanitized, want)
	}
	taints("sanitizing") // the scheduler must not take it in the moment of its release
	want := map[string]float64{"healthy gpu": 1}
	if got, _ := metricstest.Gauges(t, n.Metrics.Registry, "kata_vfio_devices"); !maps.Equal(got, want) {
		t.Errorf("health: got %v, want %v: the device waits only for its stage", got, want)
	}
}

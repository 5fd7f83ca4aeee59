package plugin_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestDeviceLostBetweenSandboxesIsReported: the kubelet asks for nothing there,
// so that nobody else tells the tenant, and once is enough.
func TestDeviceLostBetweenSandboxesIsReported(t *testing.T) {
	for name, next := range map[string]func(*plugin.HandOvers) error{
		"by the next sandbox": func(s *plugin.HandOvers) error {
			return s.HandOver(t.Context(), "uid-1", journal.Sandbox{ID: "second"})
		},
		"when the first one ends": func(s *plugin.HandOvers) error {
			_, err := s.Renew(t.Context(), "uid-1", "first")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			gpu := n.Kernel.AddGPU(0x3b)
			c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
			k := &plugintest.Kubelet{T: t, Client: plugintest.Cluster(c), Events: &plugintest.EventLog{}}
			reporter := dra.NewReporter(dra.ReporterConfig{Client: k.Client, Recorder: k.Events, Log: plugintest.Quiet()})
			go func() { _ = reporter.Run(t.Context()) }() // it has no error to return
			changes := plugintest.NewWakes()
			s := &plugin.HandOvers{Claims: n.Claims, Reporter: reporter, Changes: changes}
			n.Prepare("uid-1", "gpu-0000-3b-00-0")
			if err := s.HandOver(t.Context(), "uid-1", journal.Sandbox{ID: "first"}); err != nil || len(changes) > 0 {
				t.Fatalf("HandOver = %v with %d changes", err, len(changes))
			}
			n.Kernel.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO })
			for range 2 {
				if _, lost := errors.AsType[*prepare.QuarantinedError](next(s)); !lost {
					t.Fatal("the device is not quarantined")
				}
			}
			if len(changes) != 1 {
				t.Errorf("the publisher was told %d times, want once", len(changes))
			}
			want := []string{"Ready=False (Quarantined)", "Reset=False (Quarantined)"}
			if diff := cmp.Diff(want, plugintest.Conditions(k.Status(c)[0])); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			text := " Warning Quarantined HandOver: claim team-a/claim-uid-1 (uid-1): 0000:3b:00.0 quarantined: reset"
			k.Events.Want(t, "ResourceClaim team-a/claim-uid-1"+text, "Pod team-a/train"+text)
		})
	}
}

package dra_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestADeviceLostBetweenSandboxesIsReported: the kubelet asks for nothing there,
// so that nobody else tells the tenant, and once is enough.
func TestADeviceLostBetweenSandboxesIsReported(t *testing.T) {
	for name, next := range map[string]func(*dra.Sandboxes) error{
		"by the next sandbox": func(s *dra.Sandboxes) error {
			return s.HandOver(t.Context(), "uid-1", journal.Sandbox{ID: "second"})
		},
		"when the first one ends": func(s *dra.Sandboxes) error {
			_, err := s.Renew(t.Context(), "uid-1", "first")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			gpu := n.k.AddGPU(0x3b)
			c := allocated("uid-1", "gpu-0000-3b-00-0")
			k := &kubelet{t: t, client: cluster(c), events: &eventLog{}}
			reporter := dra.NewReporter(k.client, k.events, quiet())
			go func() { _ = reporter.Run(t.Context()) }() // it has no error to return
			changes := 0
			s := &dra.Sandboxes{Claims: n.claims, Reporter: reporter, Changed: func() { changes++ }}
			n.prepared("uid-1", "gpu-0000-3b-00-0")
			if err := s.HandOver(t.Context(), "uid-1", journal.Sandbox{ID: "first"}); err != nil || changes > 0 {
				t.Fatalf("HandOver = %v with %d changes", err, changes)
			}
			n.k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO })
			for range 2 {
				if _, lost := errors.AsType[*prepare.QuarantinedError](next(s)); !lost {
					t.Fatal("the device is not quarantined")
				}
			}
			if changes != 1 {
				t.Errorf("the publisher was told %d times, want once", changes)
			}
			want := []string{"Ready=False (Quarantined)", "Reset=False (Quarantined)"}
			if diff := cmp.Diff(want, conditions(k.status(c)[0])); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			text := " Warning Quarantined HandOver: claim team-a/claim-uid-1 (uid-1): 0000:3b:00.0 quarantined: reset"
			k.events.want(t, "ResourceClaim team-a/claim-uid-1"+text, "Pod team-a/train"+text)
		})
	}
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const (
	// auditTaint is what the plugin puts on devices that fail a check.
	auditTaint = "kata-vfio.dev/audit"
	// portAbove sets $port to the one above the GPU.
	portAbove  = "port=$(basename $(dirname $(readlink -f /sys/bus/pci/devices/" + topology.GPU0 + "))); "
	acsControl = "ECAP_ACS+6.w"
)

// tainted switches ACS off above the GPU, as recipes for peer-to-peer transfers do, and on again: the kernel hears of
// neither. The runbook leads to the command that switches it on.
func tainted(ctx context.Context, s *site) error {
	if err := s.awaitAudit(ctx, ""); err != nil {
		return err
	}
	before, err := s.output(ctx, portAbove+"setpci -s $port "+acsControl+" && setpci -s $port "+acsControl+"=0")
	if err != nil {
		return err
	}
	open := errors.Join(s.awaitAudit(ctx, "ACS-001"), s.refusesWhoTolerates(ctx), s.fixesByRunbook(ctx))
	_, err = s.output(ctx, portAbove+"setpci -s $port "+acsControl+"="+before)
	return errors.Join(open, err, s.awaitAudit(ctx, ""))
}

// awaitAudit waits until the GPU has the audit's taint of a check, or with "" no taint at all.
func (s *site) awaitAudit(ctx context.Context, want string) error {
	return s.until(ctx, fmt.Sprintf("%s has the audit's taint %q", topology.GPU0, want), nodeLimit, func(ctx context.Context) error {
		devices, err := s.published(ctx)
		if err != nil {
			return err
		}
		for _, d := range devices {
			if id := d.Attributes["resource.kubernetes.io/pciBusID"].StringValue; id == nil || *id != topology.GPU0 {
				continue
			}
			has := slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Key == auditTaint && t.Value == want })
			if has != (want != "") || want == "" && len(d.Taints) > 0 {
				return fmt.Errorf("it has %v", d.Taints)
			}
			return nil
		}
		return errors.New("it is not published")
	})
}

// refusesWhoTolerates has a pod that the policies don't look at tolerate the taints. Prepare reads the port's registers
// itself, and does not wait for the audit's next look.
func (s *site) refusesWhoTolerates(ctx context.Context) error {
	claim := strings.Replace(directClaim, "deviceClassName:", "tolerations: [{operator: Exists}], deviceClassName:", 1)
	if err := s.apply(ctx, trusted, claim+vmPod("tolerant", gpuDirect)); err != nil {
		return err
	}
	return s.awaitEvent(ctx, trusted, "tolerant", "NotIsolated", "switched off")
}

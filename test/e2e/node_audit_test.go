//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const (
	// auditTaint is what the plugin puts on devices that fail a check.
	auditTaint = "kata-vfio.dev/audit"
	// noIOMMU is the check of VFIO's mode without an IOMMU.
	noIOMMU = "IOM-003"
)

// tainted breaks the node's isolation as a careless administrator does, and mends it.
func tainted(ctx context.Context, s *site) error {
	if err := s.awaitAudit(ctx, false); err != nil {
		return err
	}
	const parameter = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
	if _, err := s.output(ctx, "echo Y > "+parameter); err != nil {
		return err
	}
	broken := errors.Join(s.awaitAudit(ctx, true), s.refusesWhoTolerates(ctx))
	_, err := s.output(ctx, "echo N > "+parameter)
	return errors.Join(broken, err, s.awaitAudit(ctx, false))
}

// awaitAudit waits until the check's id is in the taint of all devices, or of none. The lab has a GPU that fails another,
// of less severity.
func (s *site) awaitAudit(ctx context.Context, fails bool) error {
	return s.until(ctx, fmt.Sprintf("devices have the audit's taint of %s: %t", noIOMMU, fails), nodeLimit, func(ctx context.Context) error {
		devices, err := s.published(ctx)
		if err == nil && len(devices) == 0 {
			err = errors.New("there are none")
		}
		for _, d := range devices {
			got := ""
			for _, taint := range d.Taints {
				if taint.Key == auditTaint {
					got = taint.Value
				}
			}
			if (got == noIOMMU) != fails {
				err = errors.Join(err, fmt.Errorf("%s has %q", d.Name, got))
			}
		}
		return err
	})
}

// refusesWhoTolerates has a pod that the policies don't look at tolerate the taint.
func (s *site) refusesWhoTolerates(ctx context.Context) error {
	const tolerant = "tolerations: [{key: " + auditTaint + ", operator: Exists}]"
	claim := strings.Replace(directClaim, "deviceClassName:", tolerant+", deviceClassName:", 1)
	if claim == directClaim {
		return fmt.Errorf("no place for the toleration in %s", directClaim)
	}
	if err := s.apply(ctx, trusted, claim+vmPod("tolerant", gpuDirect)); err != nil {
		return err
	}
	return s.awaitEvent(ctx, trusted, "tolerant", "FailsAudit", noIOMMU)
}

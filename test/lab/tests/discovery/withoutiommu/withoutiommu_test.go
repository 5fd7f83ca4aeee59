//go:build lab

// Package withoutiommu_test runs on a machine that was booted without its IOMMU.
package withoutiommu_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestNothingIsIsolated: no function has a group, and every verdict says so, with the way out.
func TestNothingIsIsolated(t *testing.T) {
	if got := kernel.Group(t, topology.GPU0); got != "" {
		t.Fatalf("%s is in group %s: this machine has its IOMMU on", topology.GPU0, got)
	}
	snap := stage.Scan(t)
	if len(snap.Groups) > 0 || len(snap.Host.IOMMUs) > 0 {
		t.Errorf("groups %v, IOMMUs %v", snap.Groups, snap.Host.IOMMUs)
	}
	for i := range snap.Functions {
		f := &snap.Functions[i]
		if f.Group != nil {
			t.Errorf("%s is in group %d", f.Address, *f.Group)
		}
		if v := isolation.Judge(snap, f); v.Isolated || !f.IsBridge() && !v.Has(rule.NoIOMMUGroup) {
			t.Errorf("the verdict on %s is %+v; want %s", f.Address, v, rule.NoIOMMUGroup)
		}
	}
	v := isolation.Judge(snap, stage.Function(t, snap, topology.GPU0))
	if r := v.Reasons[0]; r.Severity != rule.Critical || !strings.Contains(r.Fix, "intel_iommu=on") {
		t.Errorf("the worst reason is %+v; want a critical one with the kernel parameter", r)
	}
}

// TestPrepareRefuses refuses a claim with the way out, and touches nothing.
func TestPrepareRefuses(t *testing.T) {
	before := stage.Bindings(t)
	n := stage.Open(t, stage.Config())
	_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, "0f8fad5b", topology.GPU0))
	stage.Says(t, err, topology.GPU0, "IOMMU", "intel_iommu=on")
	if _, ok := errors.AsType[*rule.RefusedError](err); !ok {
		t.Errorf("got %v; want a refusal", err)
	}
	stage.Unchanged(t, before)
}

//go:build lab

package withoutiommu_test

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// noIOMMU lets VFIO give functions without an IOMMU.
const noIOMMU = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"

// TestDiscoveryFindsNoIOMMUGroup has VFIO give a function without an IOMMU. No plugin knows that function, so other checks have
// something against it, too. The taint of the kernel, IOM-004, stays until it boots again: so it is there before.
func TestDiscoveryFindsNoIOMMUGroup(t *testing.T) {
	giveWithoutIOMMU(t)()
	before := stage.Findings(stage.Audit(t))
	takeBack := giveWithoutIOMMU(t)
	meanwhile := stage.Findings(stage.Audit(t))
	takeBack()
	if want := "fail IOM-003"; slices.Contains(before, want) || !slices.Contains(meanwhile, want) {
		t.Errorf("%q is to be found with the fault only; before it was\n%q\nand with it\n%q", want, before, meanwhile)
	}
	// A function that would be published is judged before anybody has it.
	if want := "fail IOM-002 " + topology.GPU0; !slices.Contains(before, want) || !slices.Contains(meanwhile, want) {
		t.Errorf("%q is to be found on this machine; before the fault it was\n%q\nand with it\n%q", want, before, meanwhile)
	}
	if diff := cmp.Diff(before, stage.Findings(stage.Audit(t))); diff != "" {
		t.Errorf("what is found once it is taken back (-before +after):\n%s", diff)
	}
}

// giveWithoutIOMMU gives GPU0 to VFIO until it is taken back.
func giveWithoutIOMMU(t *testing.T) (takeBack func()) {
	t.Helper()
	kernel.Write(t, noIOMMU, "Y")
	kernel.Rebind(t, topology.GPU0, "vfio-pci")
	if _, err := os.Stat("/dev/vfio/noiommu-" + kernel.Group(t, topology.GPU0)); err != nil {
		t.Error(err)
	}
	return func() {
		kernel.Rebind(t, topology.GPU0, "\n")
		kernel.Write(t, noIOMMU, "N")
	}
}

//go:build labhost

package lab_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/labtest"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// suite runs all guest tests.
var suite labtest.Suite

func TestMain(m *testing.M) { os.Exit(suite.Main(m)) }

// variants are those of the VFIO modules that most suites run with; with -short the newer one. TestClaims has both always.
func variants() []string {
	if testing.Short() {
		return []string{image.IOMMUFD}
	}
	return []string{image.IOMMUFD, image.Legacy}
}

// The machine and its nested VM. With -short, boots and the nested VM are left to the suites that are built on them.
func TestMachine(t *testing.T) {
	for _, variant := range variants() {
		t.Run(variant, func(t *testing.T) {
			m := labtest.Start(t, lab.Config{VFIO: variant})
			suite.Run(t, m, "./tests/machine")
			if !testing.Short() { // claims' VMs are of the same kind
				suite.Run(t, m, "./tests/nestedvm")
			}
			testMachine(t, m)
			if !testing.Short() && variant == image.IOMMUFD {
				testBoots(t, m)
			}
		})
	}
}

// The main job, with each variant of the VFIO modules. What PFs and guests do with a VF's traffic is the same with both and
// takes several VMs: it runs with one.
func TestClaims(t *testing.T) {
	for _, variant := range []string{image.IOMMUFD, image.Legacy} {
		t.Run(variant, func(t *testing.T) {
			others := "Sanitizing" // by groups, VMs boot faster
			if variant == image.Legacy {
				others = "VLANs|Guestnet|Endpoint|Provisioned|VGPUThat|VGPUWhose"
				if testing.Short() { // what the variants do otherwise: groups and their nodes
					others += "|Refusals|BoundB|Override|UnprepareWaits|Drain|HiddenHolder|LongPath|KeptWarm|FrameBuffer|VGPU"
				}
			}
			if testing.Short() { // several VMs each, one after the other: minutes
				others += "|VLANs|Sanitizing"
			}
			// With one processor the emulated VMs, three at a time here, are steadier.
			plugged := topology.WithNamespace()
			m := labtest.Start(t, lab.Config{VFIO: variant, CPUs: 1, Topology: &plugged})
			putGuestPrograms(t, m)
			suite.Run(t, m, "./tests/claims", "-test.timeout=25m", "-test.skip="+others)
		})
	}
}

// putGuestPrograms gives the machine the programs that run in tenants' and stages' VMs, as they are shipped.
func putGuestPrograms(t *testing.T, m *lab.Machine) {
	t.Helper()
	for _, program := range []string{"kata-vfio-guestnet", "kata-vfio-sanitize"} {
		if err := compile.Static(t.Context(), "github.com/kata-vfio/kata-vfio/cmd/"+program, filepath.Join(m.Share(), program)); err != nil {
			t.Fatal(err)
		}
	}
}

// The kernel's side of single packages.
func TestPackages(t *testing.T) {
	for _, variant := range variants() {
		t.Run(variant, func(t *testing.T) {
			m := labtest.Start(t, lab.Config{VFIO: variant})
			for _, pkg := range []string{"inventory", "vfio", "network/vf"} {
				suite.Run(t, m, "github.com/kata-vfio/kata-vfio/pkg/"+pkg, "-test.run=^TestLab")
			}
		})
	}
}

// What PFs impose on VFs, against the kernel's simulated NIC.
func TestEswitch(t *testing.T) {
	m := labtest.Start(t, lab.Config{})
	suite.Run(t, m, "./tests/eswitch")
}

// The inventory and its verdicts against the kernel and lspci, with an IOMMU and without.
func TestDiscovery(t *testing.T) {
	t.Run("with an IOMMU", func(t *testing.T) {
		m := labtest.Start(t, lab.Config{})
		suite.Run(t, m, "./tests/discovery")
	})
	t.Run("without", func(t *testing.T) {
		// Debian's kernel has its IOMMU on unless it is told otherwise.
		m := labtest.Start(t, lab.Config{WithoutIOMMU: true})
		suite.Run(t, m, "./tests/discovery/withoutiommu")
	})
}

// A plugin killed at every point of its work. With -short, the points of settings are left to the crash tests of package prepare.
func TestCrash(t *testing.T) {
	m := labtest.Start(t, lab.Config{})
	args := []string{"-test.timeout=35m"}
	if testing.Short() {
		args = append(args, "-test.skip=SettingOfAVF|WithAVGPU")
	}
	suite.Run(t, m, "./tests/crash", args...)
}

// What a kernel, a disk and other processes can do to a claim.
func TestBadDays(t *testing.T) {
	for _, variant := range variants() {
		t.Run(variant, func(t *testing.T) {
			m := labtest.Start(t, lab.Config{VFIO: variant})
			suite.Run(t, m, "./tests/badday")
		})
	}
}

// The audit against the kernel, and what it finds on it.
func TestAudit(t *testing.T) {
	for _, variant := range variants() {
		t.Run(variant, func(t *testing.T) {
			m := labtest.Start(t, lab.Config{VFIO: variant})
			suite.Run(t, m, "./tests/audit")
		})
	}
}

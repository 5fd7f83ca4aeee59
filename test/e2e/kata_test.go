//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
)

// kataCases are the cases of one of Kata's runtimes: those that it shares with the stand-in, and those that only Kata can show.
func kataCases(runtime kata.Runtime) []nodeCase {
	cases := slices.DeleteFunc(nodeCases(), func(c nodeCase) bool { return !c.contract })
	if runtime == kata.Rust {
		cases = append(cases,
			nodeCase{name: "ContainerFailsWithoutCDISpecificationInGuest", run: guestWritesNoCDI},
			nodeCase{name: "KilledShimLeavesVMThatRefusalNames", run: shimLeavesItsVM})
	} else { // the Rust runtime has no setting for hot plug, and no command that shows its settings
		cases = append(cases,
			nodeCase{name: "GuestWithoutDriverHasDevice", run: guestLacksTheDriver},
			nodeCase{name: "KilledShimLeavesDeviceToNextVM", run: shimDies},
			nodeCase{name: "DevicesAreHotPlugged", run: hotPlugged, drivers: true},
			nodeCase{name: "AuditReadsKataSettingsAsKataDoes", run: auditReadsKatasSettings})
	}
	return append(cases,
		nodeCase{name: "InitContainerConfiguresVF", run: initContainerConfiguresVF, drivers: true},
		nodeCase{name: "VFWithoutLinkIsExplained", run: linklessVFIsExplained, drivers: true},
		nodeCase{name: "ContainerVariableHasHostAddress", run: variableHasHostsAddress, drivers: true},
		nodeCase{name: "AuditKnowsKataVMs", run: auditKnowsKatasVMs},
		nodeCase{name: "CompanionsOfOneGroupAreRefused", run: companionsAreRefused},
		nodeCase{name: "VMHasMoreDevicesThanRootPorts", run: moreDevicesThanPorts, drivers: true},
		nodeCase{name: "VMExceedsMemlockLimit", run: memlockIsLow},
		nodeCase{name: "PodWithNICsOnlyHasSmallVM", run: nicPodHasSmallVM, drivers: true},
		nodeCase{name: "PodWithoutPortForDeviceDoesNotRun", run: portlessIsRefused},
		nodeCase{name: "AnnotationsAddNoDevice", run: refusesAnnotations},
	)
}

// TestKata runs pods in VMs of real Kata: the installation that KATA names, with each of its runtimes and both kinds of VFIO. A runtime that
// the installation lacks is shown as skipped; where it lacks the Go runtime too, the test fails.
func TestKata(t *testing.T) {
	source := kata.SourceOf(os.Getenv)
	if source.Dir == "" {
		t.Fatal("KATA names no installation of Kata. Unpack a release (kata-static-<version>-amd64.tar.zst and kata-go-static-<version>-amd64.tar.zst have opt/kata) and run make kata KATA=/opt/kata")
	}
	// A runtime may have no case of a choice, but one of them must.
	chosenCases(t, slices.Concat(kataCases(kata.Go), kataCases(kata.Rust), []nodeCase{{name: refusedCase}}))
	ran := false
	for _, runtime := range []kata.Runtime{kata.Go, kata.Rust} {
		for _, variant := range []string{image.IOMMUFD, image.Legacy} {
			t.Run(string(runtime)+"/"+variant, func(t *testing.T) { ran = runKata(t, source, runtime, variant) || ran })
		}
	}
	if !ran {
		t.Fatalf("$%s is %q, and nothing ran: see why each runtime was skipped", caseFilter, os.Getenv(caseFilter))
	}
}

// runKata runs the chosen cases of a runtime. It reports whether there are any.
func runKata(t *testing.T, source kata.Source, runtime kata.Runtime, variant string) bool {
	t.Helper()
	cases, match := matching(t, casesOf(runtime, variant))
	if len(cases) == 0 {
		t.Skipf("no case of the runtime %s with %s matches %s", runtime, variant, match)
	}
	if lacks := source.Lacks(runtime); lacks != "" && source.Lacks(other(runtime)) == "" {
		t.Skip(lacks)
	}
	install, err := kata.Find(t.Context(), source, runtime)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", source.Dir, install.Version)
	config := node.Config{Kata: &install, Machine: lab.Config{VFIO: variant}}
	if runtime == kata.Rust && variant == image.Legacy {
		refusedWithoutIOMMUFD(t, config)
		return true
	}
	if !install.LabsGuest() {
		t.Log("VMs boot Kata's own guest: cases that need the lab's drivers in it are left out")
		cases = slices.DeleteFunc(cases, func(c nodeCase) bool { return c.drivers })
	}
	if len(cases) == 0 {
		t.Skipf("each case that matches %s needs the lab's drivers", match)
	}
	runCases(t, config, cases)
	return true
}

// refusedCase is the only one of the Rust runtime with legacy groups.
const refusedCase = "NodeWithoutIOMMUFDIsRefused"

func casesOf(runtime kata.Runtime, variant string) []nodeCase {
	if runtime == kata.Rust && variant == image.Legacy {
		return []nodeCase{{name: refusedCase}}
	}
	return kataCases(runtime)
}

// refusedWithoutIOMMUFD: the Rust runtime adds an iommufd object for each function, also for one of a group. Without iommufd its QEMU ends at once (the
// pod's event says "timed out waiting for QMP ready"), so bootstrap refuses to set such a node up.
func refusedWithoutIOMMUFD(t *testing.T, config node.Config) {
	t.Helper()
	_, err := runOnNode(t, config, nil)
	if err == nil || !strings.Contains(err.Error(), "lacks modules that Kata needs: iommufd") {
		t.Fatalf("want bootstrap to refuse a node of the Rust runtime for its lack of iommufd, got %v", err)
	}
	t.Logf("bootstrap refuses: %v", err)
}

// other is the other one of Kata's runtimes.
func other(runtime kata.Runtime) kata.Runtime {
	if runtime == kata.Go {
		return kata.Rust
	}
	return kata.Go
}

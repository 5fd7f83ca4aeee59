//go:build e2e

package e2e

import (
	"os"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
)

// kataCases are the cases of one of Kata's runtimes: those that it shares with the stand-in, and those that only Kata can show.
func kataCases(runtime kata.Runtime) []nodeCase {
	cases := slices.DeleteFunc(nodeCases(), func(c nodeCase) bool { return !c.contract })
	if runtime == kata.Go { // the Rust runtime has no setting for hot plug, and no command that shows its settings
		cases = append(cases,
			nodeCase{name: "DevicesAreHotPlugged", run: hotPlugged},
			nodeCase{name: "TheAuditReadsKatasSettingsAsKataDoes", run: auditReadsKatasSettings})
	}
	return append(cases,
		nodeCase{name: "TheAuditKnowsKatasVMs", run: auditKnowsKatasVMs},
		nodeCase{name: "AGuestWithoutTheDriverHasTheDevice", run: guestLacksTheDriver},
		nodeCase{name: "AShimThatIsKilledLeavesItsDeviceToTheNextVM", run: shimDies},
		nodeCase{name: "CompanionsOfOneGroupAreRefused", run: companionsAreRefused},
		nodeCase{name: "AVMHasMoreDevicesThanRootPorts", run: moreDevicesThanPorts},
		nodeCase{name: "AVMIsLargerThanTheMemlockLimit", run: memlockIsLow},
		nodeCase{name: "APodWithoutAPortForItsDeviceDoesNotRun", run: portlessIsRefused},
		nodeCase{name: "AnnotationsGiveNobodyADevice", run: refusesAnnotations},
	)
}

// TestKata runs pods in VMs of real Kata: the installation that KATA names, with each of its runtimes and both kinds of VFIO.
func TestKata(t *testing.T) {
	dir := os.Getenv("KATA")
	if dir == "" {
		t.Fatal("KATA names no installation of Kata. Unpack a release (kata-static-<version>-amd64.tar.zst has opt/kata) and run make kata KATA=/opt/kata")
	}
	for _, runtime := range []kata.Runtime{kata.Go, kata.Rust} {
		for _, variant := range []string{image.IOMMUFD, image.Legacy} {
			t.Run(string(runtime)+"/"+variant, func(t *testing.T) {
				if !kata.Has(dir, runtime) {
					t.Logf("%s has no runtime %s: not run", dir, runtime)
					return
				}
				install, err := kata.Find(t.Context(), dir, os.Getenv("KATA_AGENT"), runtime)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %s", dir, install.Version)
				runCases(t, node.Config{Kata: &install, Machine: lab.Config{VFIO: variant}}, chosenCases(t, kataCases(runtime)))
			})
		}
	}
}

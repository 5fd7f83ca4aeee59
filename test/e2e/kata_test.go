//go:build e2e

package e2e

import (
	"os"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
)

// kataCases are the cases of real Kata: those of the stand-in that look at VMs, and those that only Kata can show.
func kataCases() []nodeCase {
	return []nodeCase{
		{name: "ThePluginPublishesTheGPU", run: publishesGPU},
		{name: "APodHasItsGPUInItsVMAndGivesItBack", run: podHasGPU},
		{name: "ContainersOfAPodShareItsVMAndItsDevice", run: containersShareTheVM},
		{name: "APodHasTheDevicesOfTwoClaims", run: podHasTwoClaims},
		{name: "APodHasAPhysicalEndpoint", run: podHasPhysicalEndpoint},
		{name: "AVFReachesANeighbourInItsVLAN", run: vfReachesItsVLAN},
		{name: "AGuestWithoutTheDriverHasTheDevice", run: guestLacksTheDriver},
		{name: "AVMHasMoreDevicesThanRootPorts", run: moreDevicesThanPorts},
		{name: "AVMIsLargerThanTheMemlockLimit", run: memlockIsLow},
		{name: "AStatefulSetsPodComesBackWithItsDevice", run: statefulSetRecreatesItsPod},
		{name: "DevicesAreHotPlugged", run: withHotPlug(podHasTwoClaims)},
		{name: "APodWithoutAPortForItsDeviceDoesNotRun", run: portlessIsRefused},
		{name: "AnnotationsGiveNobodyADevice", run: refusesAnnotations},
		{name: "NobodyElseGetsADevice", run: refusesAttacks, longer: true},
		{name: "APodThatIsDeletedWhileItStartsLeavesNothing", run: deletedWhileStarting},
		{name: "APodOfTheSameNameGetsTheDeviceClean", run: forceDeletedAndRecreated},
		{name: "ASandboxThatDiesIsMadeAnewWithItsDevice", run: sandboxDies},
		{name: "APluginThatIsKilledWhileAPodStartsGoesOn", run: pluginKilledWhilePodStarts},
		{name: "APodWaitsForAPluginThatIsAway", run: pluginAway},
		{name: "RestartsOfAllDaemonsLeaveAPodItsVM", run: daemonsRestart},
		{name: "AnUpgradeAndARollbackLeavePodsTheirDevices", run: upgrades},
		{name: "APodComesBackWithItsDeviceAfterAReboot", run: nodeReboots},
	}
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
				runCases(t, node.Config{Kata: &install, Machine: lab.Config{VFIO: variant}}, chosenCases(t, kataCases()))
			})
		}
	}
}

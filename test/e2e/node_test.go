//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/lab"
)

// caseFilter names the variable that chooses cases by a regular expression.
const caseFilter = "KATA_VFIO_NODE_RUN"

// nodeCase is a test on a node. It returns its failure: one that comes from the loss of the machine, which emulation of
// nested virtualization loses once in some fifty VMs, does not count.
type nodeCase struct {
	name string
	run  func(context.Context, *site) error
	// noVMs leaves out what takes most of the time where the case does not look at VMs: one that is refused would boot
	// again and again.
	noVMs bool
	// longer leaves the case out with -short: others are near it, or the lab's suites are. What is left takes a quarter of an hour on two
	// quiet processors, and half an hour on busy ones.
	longer bool
	// newest leaves the case out in the lane older, whose Kubernetes lacks what it needs: the chart refuses it there.
	newest bool
	// contract is what the stand-in and real Kata must do alike: TestKata has the case, too.
	contract bool
	// drivers leaves the case out where Kata boots its own guest: it needs drivers of the lab's devices there.
	drivers bool
	// settings are the chart's beside those of the lab, as helm --set takes them. Cases of the same settings that follow each other share
	// an installation.
	settings func(context.Context, *site) ([]string, error)
}

// chosenCases are the cases whose names match $KATA_VFIO_NODE_RUN, all of them if it is empty; with -short not the longer. One must match.
func chosenCases(t *testing.T, all []nodeCase) []nodeCase {
	t.Helper()
	chosen, match := matching(t, all)
	if len(chosen) == 0 {
		t.Fatalf("no case matches %s", match)
	}
	return chosen
}

func matching(t *testing.T, all []nodeCase) ([]nodeCase, *regexp.Regexp) {
	t.Helper()
	match, err := regexp.Compile(os.Getenv(caseFilter))
	if err != nil {
		t.Fatalf("$%s: %v", caseFilter, err)
	}
	return slices.DeleteFunc(all, func(c nodeCase) bool {
		return !match.MatchString(c.name) || c.longer && testing.Short() || c.newest && binaries.Older()
	}), match
}

// nodeCases are in the order that shows most when the first fails. Each begins with nothing held and leaves it so.
func nodeCases() []nodeCase {
	return []nodeCase{
		{name: "PluginPublishesGPU", run: publishesGPU, noVMs: true, contract: true},
		{name: "PodGetsGPUInItsVMAndReturnsIt", run: podHasGPU, contract: true, drivers: true},
		{name: "PodWithoutDeviceHasVM", run: plainPodHasVM, longer: true, contract: true},
		{name: "AuditFindsPodThatHoldsTenantsDevice", run: auditFinds},
		{name: "MetricsAreForNamedReadersOnly", run: closesMetrics, noVMs: true},
		{name: "DevicesThatFailAuditAreTainted", run: tainted, noVMs: true},
		{name: "ChartAuditSeesWhatRootSees", run: auditInAPod, noVMs: true},
		{name: "BootstrapKeepsNodeFit", run: bootstrapsNode, longer: true},
		{name: "RunbookCommandsFixSymptoms", run: followsRunbook, noVMs: true},
		{name: "AttacksOnDevicesAreRefused", run: refusesAttacks, noVMs: true, contract: true},
		{name: "PluginLoadsModuleByNodesModprobe", run: loadsModules, noVMs: true, longer: true},
		{name: "ExamplesRun", run: runsExamples, noVMs: true, longer: true},
		{name: "ExampleRunsInVM", run: runsExampleInVM, longer: true},
		{name: "KubectlTestPassesOnNode", run: testsItself, longer: true},
		{name: "PodHasDevicesOfTwoClaims", run: podHasTwoClaims, longer: true, contract: true, drivers: true},
		{name: "PodHasPhysicalEndpoint", run: podHasPhysicalEndpoint, longer: true, contract: true, drivers: true},
		{name: "VMHasGPUAndVFAndTwoEndpoints", run: vmHasAllKinds, longer: true, contract: true, drivers: true},
		{name: "CompanionStaysOutOfVM", run: companionStaysOut, longer: true, contract: true, drivers: true},
		{name: "ContainersShareVMAndDevice", run: containersShareTheVM, longer: true, contract: true, drivers: true},
		{name: "VFReachesNeighborInItsVLAN", run: vfReachesItsVLAN, longer: true, contract: true, drivers: true},
		{name: "StatefulSetPodReturnsWithDevice", run: statefulSetRecreatesItsPod, longer: true, contract: true},
		{name: "PodDeletedWhileStartingLeavesNothing", run: deletedWhileStarting, longer: true, contract: true},
		{name: "PodForceDeletedWhileStartingLeavesNothing", run: forceDeletedWhileStarting, longer: true, contract: true},
		{name: "PodOfSameNameGetsCleanDevice", run: forceDeletedAndRecreated, longer: true, contract: true},
		{name: "DeadSandboxIsReplacedWithItsDevice", run: sandboxDies, longer: true, contract: true},
		{name: "PluginKilledWhilePodStartsContinues", run: pluginKilledWhilePodStarts, longer: true, contract: true},
		{name: "SandboxIsRefusedWithoutPlugin", run: noVMWithoutPlugin, longer: true, contract: true},
		{name: "FabricPartition", run: fabricPartition, longer: true, settings: gpuSettings},
		{name: "VendorVF", run: vendorVF, longer: true, settings: gpuSettings},
		{name: "AMDVF", run: amdVF, settings: gpuSettings, longer: true},
		{name: "ContainersAndVMsShareGPU", run: containersAndVMsShareGPU, noVMs: true, longer: true, newest: true, settings: controllerSettings},
		{name: "DevicesAreSanitizedBetweenTenants", run: sanitizesBetweenTenants, noVMs: true, settings: controllerSettings},
		{name: "DomainBelongsToOneTenant", run: domainHasOneTenant, noVMs: true, longer: true, settings: controllerSettings},
		{name: "DaemonsKilledAtAnyPhaseLoseNothing", run: crashesAtEachPhase, noVMs: true, longer: true},
		{name: "PodsStartDuringRollingUpdate", run: rollingUpdate, longer: true},
		{name: "PodWaitsForPlugin", run: pluginAway, longer: true, contract: true},
		{name: "DaemonRestartsKeepVMs", run: daemonsRestart, longer: true, contract: true},
		{name: "UpgradeAndRollbackKeepDevices", run: upgrades, noVMs: true, longer: true, contract: true},
		{name: "UninstallLeavesNothing", run: uninstalls, noVMs: true},
		{name: "PodReturnsWithDeviceAfterReboot", run: nodeReboots, longer: true, contract: true},
	}
}

// panicLimit is for a machine to end after its kernel's panic, for which a kubelet sets ten seconds.
const panicLimit = 20 * time.Second

// lossesOfCase is how many machines a case may lose before that counts as its failure.
const lossesOfCase = 3

// TestNode runs pods with devices on a node in a lab machine: the plugin from its image and chart, in a cluster of its
// own. When the machine is lost, the case that it was at and those after it run on another one.
func TestNode(t *testing.T) {
	runCases(t, node.Config{}, chosenCases(t, nodeCases()))
}

// runCases runs cases on nodes of a configuration, each as a test.
func runCases(t *testing.T, c node.Config, left []nodeCase) {
	t.Helper()
	losses := 0
	var failed []caseEnd
	// Half an hour of other cases' logs can lie between a failure and the end, where people look first.
	defer func() {
		for _, e := range failed {
			t.Logf("FAILED: %s: %s", e.name, ends(e.err.Error()))
		}
	}()
	for len(left) > 0 {
		ended, err := runOnNode(t, c, left)
		for _, e := range ended {
			t.Run(e.name, func(t *testing.T) {
				if e.err != nil {
					failed = append(failed, e)
					t.Error(e.err)
				}
			})
		}
		if len(ended) > 0 {
			left, losses = left[len(ended):], 0
		}
		if err == nil {
			continue
		}
		losses++
		if !errors.Is(err, lab.ErrLost) || losses == lossesOfCase {
			t.Fatalf("%d cases did not end, the first of them %s, which lost %d machines: %v", len(left), left[0].name, losses, err)
		}
		t.Logf("%s and what follows it run on another machine: %v", left[0].name, err)
	}
}

// ends returns the beginning and the end of a text in one line.
func ends(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= 2*most {
		return text
	}
	return strings.ToValidUTF8(text[:most]+" ... "+text[len(text)-most:], "")
}

// caseEnd is how a case ended.
type caseEnd struct {
	name string
	err  error
}

// runOnNode runs the cases on a node of their own and tells how they ended. With an error, the case after those and
// what follows it have no result.
func runOnNode(t *testing.T, c node.Config, cases []nodeCase) ([]caseEnd, error) {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), controlplane.Config{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	defer plane.Stop()
	if c.Programs, err = nodePrograms(t); err != nil {
		return nil, err
	}
	if c.Kata != nil {
		if c.Images, err = guestnetImages(t); err != nil {
			return nil, err
		}
	} else {
		c.Board = true
	}
	c.Plane, c.Progress = plane, os.Stderr
	c.Machine.KernelArgs = []string{"iommu=nopt"} // what bootstrap wants; no loader of the machine's could bring it
	n, err := node.Start(t.Context(), c)
	if err != nil {
		return nil, err
	}
	defer n.Stop()
	s := &site{
		node: n, kata: c.Kata, plane: plane, client: client(t, plane, controlplane.Admin()), log: t.Logf,
		documents: readDocuments(t), reading: buildPlugin(t),
	}
	if dir := os.Getenv(logsDir); dir != "" {
		s.logs = filepath.Join(dir, t.Name())
	}
	if err := s.install(t.Context()); err != nil {
		return nil, s.explain(fmt.Errorf("install the plugin: %w", err))
	}
	var ended []caseEnd
	for _, c := range cases {
		failed := s.try(t.Context(), c)
		lost := n.Lost()
		if failed != nil && lost == nil {
			lost = n.Machine().LostWithin(panicLimit)
		}
		if lost != nil {
			return ended, fmt.Errorf("in %s: %w", c.name, lost)
		}
		ended = append(ended, caseEnd{c.name, failed})
	}
	return ended, nil
}

// nodePrograms are those that cases run on the node.
func nodePrograms(t *testing.T) (map[string]string, error) {
	t.Helper()
	programs := map[string]string{}
	for name, dir := range map[string]string{
		meddler: "test/e2e/node/", vendorDriver: "test/e2e/node/", auditProgram: "cmd/",
	} {
		programs[name] = filepath.Join(t.TempDir(), name)
		if err := compile.Static(t.Context(), "github.com/kata-vfio/kata-vfio/"+dir+name, programs[name]); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// try runs a case, after which nothing may be held. What a case leaves behind is its failure, and no other's.
func (s *site) try(ctx context.Context, c nodeCase) error {
	begin, logs := time.Now(), s.logEnds()
	err := s.prepare(ctx, c)
	if err == nil {
		err = c.run(ctx, s)
	}
	if err != nil {
		err = s.explain(err)
	}
	err = errors.Join(err, s.keepLogs(ctx, c.name, logs), s.clear(ctx))
	s.log("%s: %v after %.1fs", c.name, err, time.Since(begin).Seconds())
	return err
}

// prepare makes the node as the case needs it.
func (s *site) prepare(ctx context.Context, c nodeCase) error {
	if err := s.node.UseVMs(ctx, !c.noVMs); err != nil {
		return err
	}
	var settings []string
	if c.settings != nil {
		var err error
		if settings, err = c.settings(ctx, s); err != nil {
			return err
		}
	}
	if !s.unsettled && slices.Equal(settings, s.settings) {
		return nil
	}
	s.unsettled = true // after a failure, the next case installs its own
	if err := s.node.InstallPlugin(ctx, chart, settings...); err != nil {
		return err
	}
	s.settings, s.unsettled = settings, false
	return nil
}

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
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab"
)

// nodeCase is a test on a node. It returns its failure: one that comes from the loss of the machine, which emulation
// loses now and then, does not count, and the cases run again on a new one.
type nodeCase struct {
	name string
	run  func(context.Context, *site) error
}

// chosenCases are the cases whose names match $KATA_VFIO_NODE_RUN, all of them if it is empty.
func chosenCases(t *testing.T) []nodeCase {
	t.Helper()
	match, err := regexp.Compile(os.Getenv("KATA_VFIO_NODE_RUN"))
	if err != nil {
		t.Fatal(err)
	}
	chosen := slices.DeleteFunc(nodeCases(), func(c nodeCase) bool { return !match.MatchString(c.name) })
	if len(chosen) == 0 {
		t.Fatalf("no case matches %s", match)
	}
	return chosen
}

// nodeCases are in the order that shows most when the first fails. Each begins with nothing held and leaves it so.
func nodeCases() []nodeCase {
	return []nodeCase{
		{"ThePluginPublishesTheGPU", publishesGPU},
		{"APodHasItsGPUInItsVMAndGivesItBack", podHasGPU},
		{"NobodyElseGetsADevice", refusesAttacks},
		{"EveryExampleRuns", runsExamples},
		{"APodHasTheDevicesOfTwoClaims", podHasTwoClaims},
		{"APodThatIsDeletedWhileItStartsLeavesNothing", deletedWhileStarting},
		{"APodOfTheSameNameGetsTheDeviceClean", forceDeletedAndRecreated},
		{"ASandboxThatDiesIsMadeAnewWithItsDevice", sandboxDies},
		{"APluginThatIsKilledWhileAPodStartsGoesOn", pluginKilledWhilePodStarts},
		{"DaemonsThatAreKilledAtAnyPhaseLoseNothing", crashesAtEachPhase},
		{"PodsStartDuringARollingUpdate", rollingUpdate},
		{"APodWaitsForAPluginThatIsAway", pluginAway},
		{"RestartsOfAllDaemonsLeaveAPodItsVM", daemonsRestart},
		{"APodComesBackWithItsDeviceAfterAReboot", nodeReboots},
	}
}

// TestNode runs pods with devices on a node in a lab machine: the plugin from its image and chart, in a cluster of its
// own.
func TestNode(t *testing.T) {
	cases := chosenCases(t)
	failures, err := tryOnNode(t, cases)
	if errors.Is(err, lab.ErrLost) {
		t.Logf("all cases run a second time: %v", err)
		failures, err = tryOnNode(t, cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if failed := failures[c.name]; failed != nil {
				t.Error(failed)
			}
		})
	}
}

// tryOnNode runs the cases on a node of their own. Its error means that there is no result.
func tryOnNode(t *testing.T, cases []nodeCase) (map[string]error, error) {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), controlplane.Config{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	defer plane.Stop()
	meddling := filepath.Join(t.TempDir(), meddler)
	if err := node.Compile(t.Context(), "github.com/kata-vfio/kata-vfio/test/e2e/node/"+meddler, meddling); err != nil {
		return nil, err
	}
	n, err := node.Start(t.Context(), node.Config{
		Plane: plane, Progress: os.Stderr, Programs: map[string]string{meddler: meddling},
	})
	if err != nil {
		return nil, err
	}
	defer n.Stop()
	s := &site{node: n, plane: plane, client: client(t, plane, controlplane.Admin()), log: t.Logf}
	if err := s.install(t.Context()); err != nil {
		return nil, s.explain(fmt.Errorf("install the plugin: %w", err))
	}
	failures := map[string]error{}
	for _, c := range cases {
		if failed := s.try(t.Context(), c); failed != nil {
			failures[c.name] = failed
		}
		if lost := n.Lost(); lost != nil {
			return nil, fmt.Errorf("in %s: %w", c.name, lost)
		}
	}
	return failures, nil
}

// try runs a case, after which nothing may be held. What a case leaves behind is its failure, and no other's.
func (s *site) try(ctx context.Context, c nodeCase) error {
	begin := time.Now()
	err := c.run(ctx, s)
	if err != nil {
		err = s.explain(err)
	}
	err = errors.Join(err, s.clear(ctx))
	s.log("%s: %v after %.1fs", c.name, err, time.Since(begin).Seconds())
	return err
}

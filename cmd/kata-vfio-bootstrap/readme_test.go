package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/readme"
)

// Who is in trouble types what the README says.
func TestTheREADMERunsCommandsThatThereAre(t *testing.T) {
	for _, heading := range []string{"Install on a cluster", "Uninstall", "When something is wrong"} {
		for _, args := range readme.Commands(t, heading, "kata-vfio-bootstrap") {
			readme.Check(t, newCommand(io.Discard, io.Discard), args)
		}
	}
}

// The chart's bootstrap leaves no program on nodes: what it did is taken back by its pods, which go with the chart.
func TestTheREADMERevertsNodesWhileThePodsAreThere(t *testing.T) {
	section := readme.Section(t, "Uninstall")
	revert, uninstall := strings.Index(section, "-- kata-vfio-bootstrap revert --enter-node\n"), strings.Index(section, "`helm uninstall ")
	if revert < 0 || uninstall < 0 || uninstall < revert {
		t.Errorf("from the pod it reverts at %d, and uninstalls the chart at %d", revert, uninstall)
	}
	fromPod := func(args []string) bool { return args[0] == "verify" && slices.Contains(args, "--enter-node") }
	if !slices.ContainsFunc(readme.Commands(t, "When something is wrong", "kata-vfio-bootstrap"), fromPod) {
		t.Error("who has the program in the pod alone is not told how to verify")
	}
}

package bootstrap_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// TestFabricManagerIsSetUpAndTakenBack: the vendor's file never changes, and after a revert nothing of bootstrap is left.
func TestFabricManagerIsSetUpAndTakenBack(t *testing.T) {
	const vendor, ours = "usr/share/nvidia/nvswitch/fabricmanager.cfg", "etc/kata-vfio/fabricmanager.cfg"
	const dropIn = "etc/systemd/system/nvidia-fabricmanager.service.d/50-kata-vfio.conf"
	n := newNode(t, debian("debian", "13", "", debianGrub, map[string]string{vendor: "FABRIC_MODE=0\nLOG_LEVEL=4\n"}))
	b := blueprint.Default()
	b.Fabric.Partitions = true
	n.apply(b)
	if got := n.read(ours); !strings.Contains(got, "\nFABRIC_MODE=1\nLOG_LEVEL=4\n") {
		t.Errorf("Fabric Manager's configuration:\n%s", got)
	}
	if got := strings.Join(n.tools.ran, "\n"); strings.Contains(got, "fabricmanager") || !strings.Contains(got, "systemctl daemon-reload") {
		t.Errorf("a restart interrupts running VMs, and these ran:\n%s", got)
	}
	// An update of the vendor's file is a difference, which apply takes over.
	n.put(vendor, "FABRIC_MODE=0\nLOG_LEVEL=5\n")
	found := false
	for _, f := range n.plan(b).Files {
		found = found || f.Path == ours && f.Status != bootstrap.Right
	}
	if !found {
		t.Errorf("an update of %s is not seen", vendor)
	}
	n.apply(b)
	if got := n.read(ours); !strings.Contains(got, "\nLOG_LEVEL=5\n") {
		t.Errorf("after the update:\n%s", got)
	}
	n.revert()
	if got := n.read(vendor); got != "FABRIC_MODE=0\nLOG_LEVEL=5\n" {
		t.Errorf("the vendor's file is now %q", got)
	}
	for _, name := range []string{ours, dropIn, "etc/systemd/system/kata-vfio-fabric.service"} {
		if found, err := n.engine().Files.Look(name); err != nil || found.Kind != state.Absent {
			t.Errorf("%s is left: %+v, %v", name, found.Image, err)
		}
	}
}

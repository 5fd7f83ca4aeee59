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
	const unit, instance = "etc/systemd/system/kata-vfio-partition@.service", "etc/systemd/system/multi-user.target.wants/kata-vfio-partition@7.service"
	n := newNode(t, debian("debian", "13", "", debianGrub, map[string]string{vendor: "FABRIC_MODE=0\nLOG_LEVEL=4\n", "usr/local/bin/kata-vfio-fabric": "ELF"}))
	b := blueprint.Default()
	b.Fabric = blueprint.Fabric{Partitions: true, Activate: []int{7, 8}}
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
	n.hasInstance(instance, unit)
	// A partition less: its instance goes, and the others stay. One that is disabled by hand is a difference.
	b.Fabric.Activate = []int{7}
	n.apply(b)
	n.isGone("etc/systemd/system/multi-user.target.wants/kata-vfio-partition@8.service")
	n.remove(instance)
	n.apply(b)
	n.hasInstance(instance, unit)
	n.revert()
	if got := n.read(vendor); got != "FABRIC_MODE=0\nLOG_LEVEL=5\n" {
		t.Errorf("the vendor's file is now %q", got)
	}
	for _, name := range []string{ours, dropIn, "etc/systemd/system/kata-vfio-fabric.service", unit, instance} {
		n.isGone(name)
	}
}

func (n *node) isGone(name string) {
	n.t.Helper()
	if found, err := n.engine().Files.Look(name); err != nil || found.Kind != state.Absent {
		n.t.Errorf("%s is left: %+v, %v", name, found.Image, err)
	}
}

// hasInstance checks that systemd starts an instance of a unit at boot.
func (n *node) hasInstance(instance, unit string) {
	n.t.Helper()
	if found, err := n.engine().Files.Look(instance); err != nil || found.Target != "/"+unit {
		n.t.Errorf("%s leads to %q, want /%s: %v", instance, found.Target, unit, err)
	}
}

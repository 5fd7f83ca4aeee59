package bootstrap_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestResetMethodsAreSetAndTakenBack: apply sets them now and at each boot, another value is a difference, and revert restores the kernel's
// order.
func TestResetMethodsAreSetAndTakenBack(t *testing.T) {
	const dir, rules = "sys/bus/pci/devices/0000:3b:00.0/", "etc/udev/rules.d/10-kata-vfio.rules"
	n := newNode(t, debian("debian", "13", "", debianGrub, map[string]string{
		dir + "vendor": "0x10de\n", dir + "device": "0x2330\n", dir + "class": "0x030200\n", dir + "uevent": "", dir + "reset_method": "bus flr\n",
	}))
	b := blueprint.Default()
	b.VFIO.ResetMethods = []blueprint.ResetMethods{{Match: v1alpha1.DeviceMatch{Vendors: []pci.ID{0x10de}, Classes: []string{"0302"}}, Methods: []string{"flr", "bus"}}}
	n.apply(b)
	if got := strings.TrimSpace(n.read(dir + "reset_method")); got != "flr bus" {
		t.Errorf("the kernel's methods are %q, want flr bus", got)
	}
	if got := n.read(rules); !strings.Contains(got, `ATTR{reset_method}="flr bus"`) {
		t.Errorf("udev's rules:\n%s", got)
	}
	n.put(dir+"reset_method", "bus flr\n")
	found := false
	for _, s := range n.plan(b).Settings {
		found = found || s.Path == dir+"reset_method" && s.Status == bootstrap.ToDo
	}
	if !found {
		t.Error("a changed method is not seen")
	}
	n.apply(b)
	n.revert()
	if got := strings.TrimSpace(n.read(dir + "reset_method")); got != "bus flr" {
		t.Errorf("after a revert the kernel's methods are %q, want bus flr", got)
	}
	if found, err := n.engine().Files.Look(rules); err != nil || found.Kind != state.Absent {
		t.Errorf("%s is left: %+v, %v", rules, found.Image, err)
	}
}

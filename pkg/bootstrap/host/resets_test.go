package host_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// resetting has bus resets for NVIDIA's 3D controllers, except for one GPU.
func resetting() *blueprint.Blueprint {
	b := blueprint.Default()
	b.VFIO.ResetMethods = []blueprint.ResetMethods{
		{Match: v1alpha1.DeviceMatch{Vendors: []pci.ID{0x10de}, Classes: []string{"0302"}}, Methods: []string{"bus"}},
		{Match: v1alpha1.DeviceMatch{Vendors: []pci.ID{0x10de, 0x1002}, Devices: []pci.ID{0x2330}, Addresses: []pci.Address{{Bus: 0x5e}, {Bus: 0xAF}}}, Methods: []string{"flr", "bus"}},
	}
	return b
}

// function returns the files of a function.
func function(address, vendor, device, class, methods string) tree {
	dir := "sys/bus/pci/devices/" + address + "/"
	return tree{"sys/bus/pci/devices/" + address: "", dir + "vendor": vendor, dir + "device": device, dir + "class": class, dir + "uevent": "", dir + "reset_method": methods + "\n"}
}

func TestResetMethodsAreRulesForUdev(t *testing.T) {
	w := host.Wanted(tree{}, resetting(), &host.Platform{Systemd: true})
	want := `ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{class}=="0x0302*", TEST!="physfn", ATTR{reset_method}="bus"
ACTION=="add", SUBSYSTEM=="pci", KERNEL=="0000:5e:00.0|0000:af:00.0", ATTR{vendor}=="0x10de|0x1002", ATTR{device}=="0x2330", TEST!="physfn", ATTR{reset_method}="flr bus"
`
	if got := content(t, w, "etc/udev/rules.d/10-kata-vfio.rules"); !strings.Contains(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestResetMethodsOfTheRunningNode: each function has those of the last match, VFs and other functions keep theirs, and a method that the
// kernel does not offer is not written.
func TestResetMethodsOfTheRunningNode(t *testing.T) {
	node := tree{"sys/bus/pci/devices/0000:86:00.4/physfn/vendor": "0x10de\n"}
	for _, f := range []tree{
		function("0000:3b:00.0", "0x10de", "0x2330", "0x030200", "flr bus"),
		function("0000:5e:00.0", "0x10de", "0x2330", "0x030200", "bus flr"),
		function("0000:86:00.0", "0x10de", "0x2331", "0x030200", "flr"),
		function("0000:86:00.4", "0x10de", "0x2330", "0x030200", "flr bus"),
		function("0000:af:00.0", "0x15b3", "0x2330", "0x020000", "flr bus"),
	} {
		maps.Copy(node, f)
	}
	w := host.Wanted(node, resetting(), &host.Platform{Live: true, Systemd: true, IOMMUs: []string{"dmar0"}})
	var settings []state.Setting
	for _, s := range w.Settings {
		if s.Part == "reset" {
			s.Why = ""
			settings = append(settings, s)
		}
	}
	want := []state.Setting{
		{Part: "reset", Path: "sys/bus/pci/devices/0000:3b:00.0/reset_method", Value: "bus"},
		{Part: "reset", Path: "sys/bus/pci/devices/0000:5e:00.0/reset_method", Value: "flr bus"},
	}
	if diff := cmp.Diff(want, settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	var missing []string
	for _, p := range w.Problems {
		if p.Code == rule.ResetMethodMissing {
			missing = append(missing, p.Text)
			if p.Fatal || !strings.Contains(p.Fix, "echo default > /sys/bus/pci/devices/0000:86:00.0/reset_method") {
				t.Errorf("%+v", p)
			}
		}
	}
	if want := []string{`vfio.resetMethods wants "bus" for 0000:86:00.0, and the kernel uses "flr" of those that it has`}; !cmp.Equal(missing, want) {
		t.Errorf("got the problems %q, want %q", missing, want)
	}
}

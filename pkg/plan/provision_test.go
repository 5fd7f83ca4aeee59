package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// The fixture's PF has one VF of seven.
func TestProvisions(t *testing.T) {
	for name, tt := range map[string]struct {
		rule    v1alpha1.VFRule
		change  func(*device.Snapshot, *plan.Node)
		due     bool
		eswitch plan.Eswitch
		refused string // what the reason says
	}{
		"another mode":          {rule: switchdev(1), eswitch: plan.Eswitch{Mode: "legacy"}, due: true},
		"another mode and more": {rule: switchdev(4), eswitch: plan.Eswitch{Mode: "legacy"}, due: true},
		"the mode it has":       {rule: switchdev(1), eswitch: plan.Eswitch{Mode: "switchdev"}},
		"the mode, and more":    {rule: switchdev(4), eswitch: plan.Eswitch{Mode: "switchdev"}, due: true},
		"no mode said":          {rule: v1alpha1.VFRule{PF: "eth0", Count: new(1)}, eswitch: plan.Eswitch{Mode: "switchdev"}},
		"a driver without modes": {
			rule: switchdev(1), refused: "eswitchMode: its driver igb has no eswitch modes",
		},
		"an eswitch that can't be asked": {
			rule: switchdev(1), eswitch: plan.Eswitch{Err: errors.New("no answer")}, refused: "eswitchMode: no answer",
		},
		"another mode while a VF is a claim's": {
			rule: switchdev(1), eswitch: plan.Eswitch{Mode: "legacy"}, change: held,
			refused: "its eswitch is in legacy mode, but switchdev mode is required; drivers set it only while the PF has no VFs, but VF 0000:21:10.0 is held by claim uid-2",
		},
		"another mode of a PF in a VM": {
			rule: v1alpha1.VFRule{PF: "0000:21:00.0", Count: new(1), EswitchMode: v1alpha1.EswitchSwitchdev}, refused: "may be in a VM",
			change: func(s *device.Snapshot, _ *plan.Node) { of(s, nic).Driver = "vfio-pci" },
		},
		"more, by address":     {rule: v1alpha1.VFRule{PF: "0000:21:00.0", Count: new(4)}, due: true},
		"more, by interface":   {rule: v1alpha1.VFRule{PF: "eth0", Count: new(7)}, due: true},
		"none":                 {rule: v1alpha1.VFRule{PF: "eth0", Count: new(0)}, due: true},
		"as it is":             {rule: v1alpha1.VFRule{PF: "eth0", Count: new(1)}},
		"as it is, and in use": {rule: v1alpha1.VFRule{PF: "eth0", Count: new(1)}, change: held},
		"host drivers let in": {
			rule: v1alpha1.VFRule{PF: "eth0", Count: new(1)}, due: true,
			change: func(s *device.Snapshot, _ *plan.Node) { of(s, nic).PF.Autoprobe = true },
		},
		"host drivers let in, and in use": {
			rule: v1alpha1.VFRule{PF: "eth0", Count: new(1)}, due: true,
			change: func(s *device.Snapshot, n *plan.Node) { held(s, n); of(s, nic).PF.Autoprobe = true },
		},
		"host drivers let in to none": {
			rule: v1alpha1.VFRule{PF: "eth0", Count: new(0)},
			change: func(s *device.Snapshot, _ *plan.Node) {
				of(s, nic).PF.Autoprobe, of(s, nic).PF.NumVFs, of(s, nic).PF.VFs = true, 0, nil
			},
		},
		"more than there can be": {rule: v1alpha1.VFRule{PF: "eth0", Count: new(8)}, refused: "it needs 8 VFs, but supports 7"},
		"no room for VFs in memory": {
			rule: v1alpha1.VFRule{PF: "eth0", Count: new(4)}, refused: "VF BAR 0 and VF BAR 3 have no address, so the kernel can't make VFs",
			change: func(s *device.Snapshot, _ *plan.Node) { of(s, nic).PF.UnassignedBARs = []int{0, 3} },
		},
		"no room for VFs, and none wanted": {
			rule: v1alpha1.VFRule{PF: "eth0", Count: new(0)}, due: true,
			change: func(s *device.Snapshot, _ *plan.Node) { of(s, nic).PF.UnassignedBARs = []int{0, 3} },
		},
		"no such PF":              {rule: v1alpha1.VFRule{PF: "ens9", Count: new(8)}, refused: "no such PF"},
		"no PF, and none needed":  {rule: v1alpha1.VFRule{PF: "ens9", Count: new(8), Optional: true}},
		"a function that is none": {rule: v1alpha1.VFRule{PF: gpuAddr.String(), Count: new(8)}, refused: "no such PF"},
		"a VF is a claim's":       {rule: v1alpha1.VFRule{PF: "eth0", Count: new(2)}, change: held, refused: "VF 0000:21:10.0 is held by claim uid-2"},
		"a VF is on vfio-pci": {
			rule: v1alpha1.VFRule{PF: "eth0", Count: new(2)}, refused: "0000:21:10.0 is on vfio-pci",
			change: func(s *device.Snapshot, _ *plan.Node) { of(s, nicVF).Driver = "vfio-pci" },
		},
		"a VF is a container's": {
			rule: v1alpha1.VFRule{PF: "eth0", Count: new(2)}, refused: "0000:21:10.0 is in use: its netdev is in another network namespace",
			change: func(s *device.Snapshot, _ *plan.Node) {
				of(s, nicVF).Uses = []device.Use{{Kind: device.UseNamespace}}
			},
		},
		"the PF is in a VM": {
			rule: v1alpha1.VFRule{PF: "0000:21:00.0", Count: new(2)}, refused: "may be in a VM",
			change: func(s *device.Snapshot, _ *plan.Node) { of(s, nic).Driver = "vfio-pci" },
		},
		"the PF has no driver": {
			rule: v1alpha1.VFRule{PF: "0000:21:00.0", Count: new(2)}, refused: "no driver",
			change: func(s *device.Snapshot, _ *plan.Node) { of(s, nic).Driver = "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			n := node(s)
			if tt.change != nil {
				tt.change(s, &n)
			}
			got := plan.Provisions([]v1alpha1.VFRule{tt.rule}, n, map[pci.Address]plan.Eswitch{nic: tt.eswitch})[0]
			if got.Due() != tt.due || (got.Refused != "") != (tt.refused != "") || !strings.Contains(got.Refused, tt.refused) {
				t.Errorf("%+v, want due: %t, refused: %q", got, tt.due, tt.refused)
			}
			if (got.Refused != "") != (got.Fix != "") {
				t.Errorf("refused: %q, fix: %q; want both or neither", got.Refused, got.Fix)
			}
			if !strings.Contains(got.String(), tt.rule.PF) {
				t.Errorf("%q, want it to name %s", got.String(), tt.rule.PF)
			}
		})
	}
}

// TestProvisionNamesVFsOnHostDrivers: they stay there where the VFs do; a claim's are its own business.
func TestProvisionNamesVFsOnHostDrivers(t *testing.T) {
	s := fixture()
	of(s, nic).PF.Autoprobe = true
	n := node(s)
	rules := []v1alpha1.VFRule{{PF: "eth0", Count: new(1)}}
	got := plan.Provisions(rules, n, nil)[0]
	const want = "PF 0000:21:00.0 (eth0): has its 1 VF, host drivers are kept from them (sriov_drivers_autoprobe), on host drivers still: 0000:21:10.0"
	if got.String() != want {
		t.Errorf("%q, want %q", got.String(), want)
	}
	held(s, &n)
	if got := plan.Provisions(rules, n, nil)[0]; len(got.OnHostDrivers) != 0 {
		t.Errorf("on host drivers: %v, want none: a claim has them", got.OnHostDrivers)
	}
}

// TestProvisionWaitsForAVFThatIsInUse, and for nothing else; one that would take VFs away does not come over them by itself.
func TestProvisionWaitsForAVFThatIsInUse(t *testing.T) {
	s := fixture()
	n := node(s)
	held(s, &n)
	for name, tt := range map[string]struct {
		rule  v1alpha1.VFRule
		waits bool
	}{
		"more":               {v1alpha1.VFRule{PF: "eth0", Count: new(4)}, true},
		"more than can be":   {v1alpha1.VFRule{PF: "eth0", Count: new(8)}, false},
		"none":               {v1alpha1.VFRule{PF: "eth0", Count: new(0)}, false},
		"as it is":           {v1alpha1.VFRule{PF: "eth0", Count: new(1)}, false},
		"no such PF":         {v1alpha1.VFRule{PF: "ens9", Count: new(1)}, false},
		"as many, otherwise": {switchdev(1), true},
	} {
		got := plan.Provisions([]v1alpha1.VFRule{tt.rule}, n, map[pci.Address]plan.Eswitch{nic: {Mode: "legacy"}})[0]
		if got.Waits != tt.waits {
			t.Errorf("%s: %+v, want that it waits: %t", name, got, tt.waits)
		}
	}
}

// TestRuleForOtherBoards: a node without the PF of an optional rule is as the rule wants it, and says so.
func TestRuleForOtherBoards(t *testing.T) {
	got := plan.Provisions([]v1alpha1.VFRule{{PF: "ens9", Count: new(8), Optional: true}}, node(fixture()), nil)[0]
	if want := "PF ens9: not on this node, and its rule is optional"; !got.Absent || !got.Right() || got.String() != want {
		t.Errorf("%q (%+v), want %q and nothing to do", got.String(), got, want)
	}
}

// TestOneRuleForAPF: two that name it otherwise would have it made again for ever.
func TestOneRuleForAPF(t *testing.T) {
	got := plan.Provisions([]v1alpha1.VFRule{
		{PF: "eth0", Count: new(2)}, {PF: "ens9", Count: new(2)}, {PF: "ens10", Count: new(2)}, {PF: "0000:21:00.0", Count: new(4)},
	}, node(fixture()), nil)
	if !got[0].Due() {
		t.Errorf("the first: %+v, want that it holds", got[0])
	}
	for _, i := range []int{1, 2} {
		if !strings.Contains(got[i].Refused, "no such PF") {
			t.Errorf("%+v, want that there is none", got[i])
		}
	}
	if second := got[3].String(); got[3].Due() || !strings.Contains(second, "rule eth0") || !strings.Contains(second, "0000:21:00.0 out of virtualFunctions") {
		t.Errorf("the second: %q, want both to be named", second)
	}
}

func switchdev(count int) v1alpha1.VFRule {
	return v1alpha1.VFRule{PF: "eth0", Count: &count, EswitchMode: v1alpha1.EswitchSwitchdev}
}

func held(_ *device.Snapshot, n *plan.Node) {
	n.Owners[nicVF] = plan.Owner{Claim: plan.Ref{UID: "uid-2"}}
}

func of(s *device.Snapshot, a pci.Address) *device.Function {
	f, _ := s.Function(a)
	return f
}

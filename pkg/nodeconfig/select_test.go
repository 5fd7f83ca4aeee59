package nodeconfig_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func addr(t testing.TB, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// node has one function of each sort that Select tells apart.
func node(t testing.TB) *device.Snapshot {
	pf := func(a string, f device.Function) device.Function {
		f.Address, f.Class, f.Vendor = addr(t, a), 0x020000, 0x8086
		f.Type = device.Classify(f.Class, f.Capabilities.Header, f.PF != nil, f.VF != nil)
		return f
	}
	gpu := func(a string, class pci.Class, uses ...device.Use) device.Function {
		return device.Function{
			Address: addr(t, a), Class: class, Vendor: 0x10de, Device: 0x2330,
			Type: device.Classify(class, "", false, false), Uses: uses,
		}
	}
	vf := func(of string, index int) *device.VF { return &device.VF{PF: addr(t, of), Index: index} }
	return &device.Snapshot{Functions: []device.Function{
		gpu("0000:00:02.0", 0x030000, device.Use{Kind: device.UseConsole, Name: "card0"}),
		{Address: addr(t, "0000:00:1c.0"), Class: 0x060400, Type: device.Bridge, Vendor: 0x8086},
		gpu("0000:3b:00.0", 0x030200),
		{Address: addr(t, "0000:3b:00.1"), Class: 0x040300, Type: device.Other, Vendor: 0x10de, Device: 0x22ba},
		gpu("0000:3c:00.0", 0x120000),
		pf("0000:5e:00.0", device.Function{
			PF: &device.PF{TotalVFs: 7, NumVFs: 2}, Driver: "igb", Children: device.Children{Net: []string{"ens1f0"}},
		}),
		pf("0000:5e:00.1", device.Function{PF: &device.PF{TotalVFs: 7}, Driver: "igb", Children: device.Children{Net: []string{"ens1f1"}}}),
		pf("0000:5e:10.0", device.Function{VF: vf("0000:5e:00.0", 0)}),
		pf("0000:5e:10.2", device.Function{VF: vf("0000:5e:00.0", 1), Uses: []device.Use{
			{Kind: device.UseAddress, Name: "ens1f0v1", Detail: "10.0.0.5/24"},
			{Kind: device.UseRoute, Name: "ens1f0v1", Detail: "default"},
		}}),
		pf("0000:81:00.0", device.Function{PF: &device.PF{TotalVFs: 1, NumVFs: 1}, Driver: "vfio-pci"}),
		pf("0000:81:10.0", device.Function{VF: vf("0000:81:00.0", 0)}),
		{Address: addr(t, "10000:01:00.0"), Class: 0x010802, Type: device.NVMe, Vendor: 0x144d, Device: 0xa80a},
	}}
}

func rule(m v1alpha1.DeviceMatch) v1alpha1.DeviceRule { return v1alpha1.DeviceRule{Match: m} }

func ours(sel *nodeconfig.Selection) []string {
	names := []string{}
	for _, f := range sel.Ours() {
		names = append(names, f.Address.String())
	}
	return names
}

// TestSelectNVSwitches: they are selected where a rule says more than a vendor, and excluded by any rule that matches them.
func TestSelectNVSwitches(t *testing.T) {
	const gpu, nvSwitch, port = "0000:3b:00.0", "0000:08:00.0", "0000:07:00.0"
	s := &device.Snapshot{Functions: []device.Function{
		{Address: addr(t, port), Class: 0x060400, Type: device.Bridge, Vendor: 0x10de, Capabilities: pci.Capabilities{Header: pci.HeaderBridge}},
		{Address: addr(t, nvSwitch), Class: 0x068000, Type: device.Other, Vendor: 0x10de, Device: 0x22a3, Capabilities: pci.Capabilities{Header: pci.HeaderNormal}},
		{Address: addr(t, gpu), Class: 0x030200, Type: device.GPU, Vendor: 0x10de, Device: 0x2330},
	}}
	nvidia := []pci.ID{0x10de}
	for name, test := range map[string]struct {
		rules []v1alpha1.DeviceRule
		want  []string
	}{
		"vendor":            {[]v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Vendors: nvidia})}, []string{gpu}},
		"vendor and class":  {[]v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Vendors: nvidia, Classes: []string{"0680"}})}, []string{nvSwitch}},
		"class with ports":  {[]v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Classes: []string{"06"}})}, []string{nvSwitch}},
		"vendor and device": {[]v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Vendors: nvidia, Devices: []pci.ID{0x22a3}})}, []string{nvSwitch}},
		"address":           {[]v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, nvSwitch)}})}, []string{nvSwitch}},
		"type":              {[]v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Types: []string{"other"}})}, []string{nvSwitch}},
		"an exclusion by vendor": {
			[]v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Vendors: nvidia}, Exclude: true}, rule(v1alpha1.DeviceMatch{Types: []string{"gpu", "other"}})}, []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sel := nodeconfig.Select(&v1alpha1.NodeConfig{Devices: test.rules}, s)
			if diff := cmp.Diff(test.want, ours(sel)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if problems := sel.Problems(); len(problems) > 0 {
				t.Errorf("problems: %v", problems)
			}
		})
	}
	if diff := cmp.Diff([]string{gpu}, ours(nodeconfig.Select(nil, s))); diff != "" {
		t.Errorf("without a config (-want +got):\n%s", diff)
	}
}

// TestSelectBMCDisplays: only a rule that names one selects it, and any rule that matches it excludes it.
func TestSelectBMCDisplays(t *testing.T) {
	const gpu, bmc = "0000:3b:00.0", "0000:03:00.0"
	s := &device.Snapshot{Functions: []device.Function{
		{Address: addr(t, bmc), Class: 0x030000, Type: device.GPU, Vendor: 0x1a03, Device: 0x2000},
		{Address: addr(t, gpu), Class: 0x030200, Type: device.GPU, Vendor: 0x10de, Device: 0x2330},
	}}
	byType := v1alpha1.DeviceMatch{Types: []string{"gpu"}}
	for name, test := range map[string]struct {
		cfg  *v1alpha1.NodeConfig
		want []string
		why  string // said of the display
	}{
		"no config": {nil, []string{gpu}, "names its device ID or address"},
		"type":      {selecting(rule(byType)), []string{gpu}, "names its device ID or address"},
		"class":     {selecting(rule(v1alpha1.DeviceMatch{Classes: []string{"03"}})), []string{gpu}, "management controller"},
		"vendor":    {selecting(rule(v1alpha1.DeviceMatch{Vendors: []pci.ID{0x1a03}})), []string{}, "management controller"},
		"device":    {selecting(rule(v1alpha1.DeviceMatch{Vendors: []pci.ID{0x1a03}, Devices: []pci.ID{0x2000}})), []string{bmc}, ""},
		"address":   {selecting(rule(byType), rule(v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, bmc)}})), []string{bmc, gpu}, ""},
		"an exclusion by type": {
			selecting(v1alpha1.DeviceRule{Match: byType, Exclude: true}, rule(v1alpha1.DeviceMatch{Devices: []pci.ID{0x2000}})), []string{}, "rule 1 of the node config excludes it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sel := nodeconfig.Select(test.cfg, s)
			if diff := cmp.Diff(test.want, ours(sel)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if why := sel.Choice(addr(t, bmc)).Why; !strings.Contains(why, test.why) || (why == "") != (test.why == "") {
				t.Errorf("the choice says %q, want %q", why, test.why)
			}
		})
	}
}

func selecting(rules ...v1alpha1.DeviceRule) *v1alpha1.NodeConfig {
	return &v1alpha1.NodeConfig{Devices: rules}
}

func TestSelect(t *testing.T) {
	tests := map[string]struct {
		cfg  *v1alpha1.NodeConfig
		want []string
	}{
		"no config":      {nil, []string{"0000:3b:00.0", "0000:3c:00.0", "0000:5e:10.0"}},
		"default config": {nodeconfig.Default(), []string{"0000:3b:00.0", "0000:3c:00.0", "0000:5e:10.0"}},
		"nothing":        {&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{}}, []string{}},
		"vendor": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Vendors: []pci.ID{0x10de}})}},
			[]string{"0000:3b:00.0", "0000:3b:00.1", "0000:3c:00.0"},
		},
		"vendor and device": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Vendors: []pci.ID{0x10de}, Devices: []pci.ID{0x22ba}})}},
			[]string{"0000:3b:00.1"},
		},
		"class": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Classes: []string{"0302", "010802"}})}},
			[]string{"0000:3b:00.0", "10000:01:00.0"},
		},
		"type": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Types: []string{"pf", "nvme"}})}},
			[]string{"0000:5e:00.1", "10000:01:00.0"},
		},
		"address": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:5e:00.1")}})}},
			[]string{"0000:5e:00.1"},
		},
		"VFs of a PF, never the PF": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{PFNames: []string{"ens1f0", "ens1f1"}})}},
			[]string{"0000:5e:10.0"},
		},
		"first match decides": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
				{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:3b:00.0")}}, Exclude: true},
				rule(v1alpha1.DeviceMatch{Types: []string{"gpu"}}),
			}},
			[]string{"0000:3c:00.0"},
		},
		"a later exclusion is too late": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
				rule(v1alpha1.DeviceMatch{Types: []string{"gpu"}}),
				{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:3b:00.0")}}, Exclude: true},
			}},
			[]string{"0000:3b:00.0", "0000:3c:00.0"},
		},
		"all that there is": {
			&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Types: []string{"gpu", "pf", "vf", "nvme", "other"}})}},
			[]string{"0000:3b:00.0", "0000:3b:00.1", "0000:3c:00.0", "0000:5e:00.1", "0000:5e:10.0", "10000:01:00.0"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ours(nodeconfig.Select(test.cfg, node(t)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChoice(t *testing.T) {
	cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Name: "spare", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:3c:00.0")}}, Exclude: true},
		{Name: "gpus", Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Policy: v1alpha1.PolicyBound},
		{Match: v1alpha1.DeviceMatch{Types: []string{"pf", "vf"}}},
	}}
	tests := map[string]nodeconfig.Choice{
		"0000:3b:00.0": {Ours: true, Policy: v1alpha1.PolicyBound, Rule: "rule 2 (gpus)", Name: "gpus"},
		"0000:3c:00.0": {Rule: "rule 1 (spare)", Name: "spare", Why: "rule 1 (spare) of the node config excludes it"},
		"0000:3b:00.1": {Why: "no rule of the node config matches it"},
		"0000:5e:10.0": {Ours: true, Policy: v1alpha1.PolicyOnDemand, Rule: "rule 3"},
		"0000:00:02.0": {Forbidden: true, Rule: "rule 2 (gpus)", Name: "gpus", Why: "it drives the boot console"},
		"0000:00:1c.0": {Forbidden: true, Why: "it is a bridge"},
		"0000:5e:00.0": {Forbidden: true, Rule: "rule 3", Why: "it is a PF with VFs enabled (2), which binding it would destroy"},
		"0000:5e:10.2": {Forbidden: true, Rule: "rule 3", Why: "netdev ens1f0v1 has address 10.0.0.5/24, netdev ens1f0v1 carries the route default"},
		"0000:81:10.0": {Forbidden: true, Rule: "rule 3", Why: "its PF 0000:81:00.0 is on vfio-pci and may be a tenant's"},
		"0000:ff:00.0": {Why: "this node has no such function"},
	}
	sel := nodeconfig.Select(cfg, node(t))
	for a, want := range tests {
		t.Run(a, func(t *testing.T) {
			if diff := cmp.Diff(want, sel.Choice(addr(t, a))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarmRules(t *testing.T) {
	warm := func(name string, share v1alpha1.Share, types ...string) v1alpha1.DeviceRule {
		return v1alpha1.DeviceRule{Name: name, Match: v1alpha1.DeviceMatch{Types: types}, Warm: share}
	}
	cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		warm("gpus", v1alpha1.Share{Amount: 10, Percent: true}, "gpu"),
		warm("vfs", v1alpha1.Share{}, "vf"),
		warm("all", v1alpha1.Share{Amount: 9}, "gpu", "pf"),
	}}
	type found struct {
		Rule string
		Want int
		Of   []string
	}
	var got []found
	for _, w := range nodeconfig.Select(cfg, node(t)).Warm() {
		f := found{Rule: w.Rule, Want: w.Want}
		for _, of := range w.Functions {
			f.Of = append(f.Of, of.Address.String())
		}
		got = append(got, f)
	}
	want := []found{
		{"rule 1 (gpus)", 1, []string{"0000:3b:00.0", "0000:3c:00.0"}},
		{"rule 3 (all)", 1, []string{"0000:5e:00.1"}}, // the GPUs are of the first rule
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := nodeconfig.Select(nil, node(t)).Warm(); got != nil {
		t.Errorf("without a config: %v, want none", got)
	}
}

func TestChoiceByDefault(t *testing.T) {
	sel := nodeconfig.Select(nil, node(t))
	want := nodeconfig.Choice{Ours: true, Policy: v1alpha1.PolicyOnDemand, Rule: "default"}
	if diff := cmp.Diff(want, sel.Choice(addr(t, "0000:3b:00.0"))); diff != "" {
		t.Errorf("GPU (-want +got):\n%s", diff)
	}
	want = nodeconfig.Choice{Why: "it is neither a GPU nor the VF of a NIC, and no node config names it"}
	if diff := cmp.Diff(want, sel.Choice(addr(t, "0000:5e:00.1"))); diff != "" {
		t.Errorf("PF (-want +got):\n%s", diff)
	}
	if got := sel.Problems(); got != nil {
		t.Errorf("the default rules have problems: %v", got)
	}
}

func TestSelectForbidsDevicesInUse(t *testing.T) {
	for _, kind := range []device.UseKind{
		device.UseAddress, device.UseRoute, device.UseMaster, device.UseNamespace,
		device.UseMount, device.UseSwap, device.UseStack, device.UseConsole,
	} {
		s := node(t)
		gpu, _ := s.Function(addr(t, "0000:3b:00.0"))
		gpu.Uses = []device.Use{{Kind: kind, Name: "x", Detail: "y"}}
		if c := nodeconfig.Select(nil, s).Choice(gpu.Address); c.Ours || !c.Forbidden || c.Why == "" {
			t.Errorf("use %s: got %+v", kind, c)
		}
	}
}

// A GPU that somebody gave to VFIO is not the node's, though VFIO can't use it while the firmware's frame buffer is in its memory.
func TestSelectWithFirmwareFrameBuffer(t *testing.T) {
	for driver, ours := range map[string]bool{"vfio-pci": true, "amdgpu": false, "": false} {
		s := node(t)
		gpu, _ := s.Function(addr(t, "0000:3b:00.0"))
		gpu.Driver, gpu.Uses = driver, []device.Use{{Kind: device.UseConsole, Name: "BOOTFB", Detail: "its BAR 0"}}
		if c := nodeconfig.Select(nil, s).Choice(gpu.Address); c.Ours != ours || c.Forbidden == ours {
			t.Errorf("on driver %q: got %+v, want ours %t", driver, c, ours)
		}
	}
}

func TestProblems(t *testing.T) {
	cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		rule(v1alpha1.DeviceMatch{Vendors: []pci.ID{0x1002}}),
		{Name: "moved", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:99:00.0"), addr(t, "0000:3b:00.0")}}},
		{Name: "bridge", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:00:1c.0")}}},
		{Name: "console", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:00:02.0")}}, Exclude: true},
		{Name: "intel", Match: v1alpha1.DeviceMatch{Vendors: []pci.ID{0x8086}}},
		{Name: "late", Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}},
		{Name: "gone", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{addr(t, "0000:98:00.0")}}, Exclude: true},
	}}
	want := []string{
		"rule 1 matches no function of this node; correct or remove the rule; kata-vfio-audit devices lists the node's functions (ConfigDoesNotFit)",
		"rule 2 (moved) names 0000:99:00.0, which this node doesn't have; correct or remove the address; kata-vfio-audit devices lists the node's functions (ConfigDoesNotFit)",
		"rule 3 (bridge) matches 0000:00:1c.0, which must not be taken: it is a bridge; remove it from the rule, and name the functions below it if tenants may have them (ConfigDoesNotFit)",
		"rule 5 (intel) matches 0000:5e:00.0, which must not be taken: it is a PF with VFs enabled (2), which binding it would destroy; " +
			"free the function of that, or exclude it by a rule before this one (ConfigDoesNotFit)",
		"rule 5 (intel) matches 0000:5e:10.2, which must not be taken: netdev ens1f0v1 has address 10.0.0.5/24, " +
			"netdev ens1f0v1 carries the route default; free the function of that, or exclude it by a rule before this one (ConfigDoesNotFit)",
		"rule 5 (intel) matches 0000:81:00.0, which must not be taken: it is a PF with VFs enabled (1), which binding it would destroy; " +
			"free the function of that, or exclude it by a rule before this one (ConfigDoesNotFit)",
		"rule 5 (intel) matches 0000:81:10.0, which must not be taken: its PF 0000:81:00.0 is on vfio-pci and may be a tenant's; " +
			"free the function of that, or exclude it by a rule before this one (ConfigDoesNotFit)",
		"rule 7 (gone) names 0000:98:00.0, which this node doesn't have; correct or remove the address; kata-vfio-audit devices lists the node's functions (ConfigDoesNotFit)",
	}
	var got []string
	for _, p := range nodeconfig.Select(cfg, node(t)).Problems() {
		got = append(got, p.Sentence())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The API package can't import the types that it lets a rule name.
func TestRulesCanNameEveryType(t *testing.T) {
	for _, typ := range device.Types() {
		cfg := v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Types: []string{string(typ)}})}}
		if err := cfg.Validate(); (err == nil) != (typ != device.Bridge) {
			t.Errorf("type %s: %v", typ, err)
		}
	}
}

func TestSelectOnAnEmptyNode(t *testing.T) {
	cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Types: []string{"gpu"}})}}
	sel := nodeconfig.Select(cfg, &device.Snapshot{})
	if len(sel.Ours()) != 0 || len(sel.Problems()) != 1 {
		t.Errorf("ours %v, problems %v", sel.Ours(), sel.Problems())
	}
}

func BenchmarkSelect4096(b *testing.B) {
	s := &device.Snapshot{}
	for i := range 4096 {
		s.Functions = append(s.Functions, device.Function{Address: pci.Address{Domain: uint32(i)}, Type: device.GPU, Class: 0x030200})
	}
	cfg := &v1alpha1.NodeConfig{Devices: slices.Repeat([]v1alpha1.DeviceRule{rule(v1alpha1.DeviceMatch{Classes: []string{"02"}})}, 8)}
	for b.Loop() {
		nodeconfig.Select(cfg, s)
	}
}

// TestPackagedConfigSaysNothing: the file that packages install changes nothing for a node that had none.
func TestPackagedConfigSaysNothing(t *testing.T) {
	text, err := os.ReadFile("../../deploy/packages/node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := v1alpha1.DecodeNodeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	want := nodeconfig.Default()
	want.TypeMeta = cfg.TypeMeta
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Errorf("it differs from no file (-none +file):\n%s", diff)
	}
	_, examples, _ := strings.Cut(string(text), "kind: NodeConfig\n")
	examples = strings.TrimPrefix(strings.ReplaceAll("\n"+examples, "\n#", "\n"), "\n")
	cfg, err = v1alpha1.DecodeNodeConfig(append(text, examples...))
	if err != nil || len(cfg.Devices) != 2 || len(cfg.VirtualFunctions) != 1 {
		t.Errorf("its examples say %+v, %v", cfg, err)
	}
}

// TestSwitchManagerIsNoNIC: by its type, vendor, class and ID, the ConnectX function that manages the NVSwitches of a board is a NIC. Only its
// address means it. One that may be such a function is never taken.
func TestSwitchManagerIsNoNIC(t *testing.T) {
	at, nic, unread := pci.Address{Bus: 0x58}, pci.Address{Bus: 0x59}, pci.Address{Bus: 0x5a}
	function := func(a pci.Address, m device.SwitchManager) device.Function {
		return device.Function{Address: a, Type: device.PFType, Vendor: pci.VendorMellanox, Device: 0x1021, Class: 0x020700, Driver: "mlx5_core", Manager: &m}
	}
	s := &device.Snapshot{Functions: []device.Function{
		function(at, device.SwitchManager{Manages: true}), function(nic, device.SwitchManager{}), function(unread, device.SwitchManager{Unread: "input/output error"}),
	}}
	for name, c := range map[string]struct {
		match v1alpha1.DeviceMatch
		ours  bool
	}{
		"everything":  {v1alpha1.DeviceMatch{}, false},
		"its type":    {v1alpha1.DeviceMatch{Types: []string{"pf"}}, false},
		"its vendor":  {v1alpha1.DeviceMatch{Vendors: []pci.ID{pci.VendorMellanox}}, false},
		"its class":   {v1alpha1.DeviceMatch{Classes: []string{"0207"}}, false},
		"its ID":      {v1alpha1.DeviceMatch{Devices: []pci.ID{0x1021}}, false},
		"its address": {v1alpha1.DeviceMatch{Addresses: []pci.Address{at, nic, unread}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			sel := nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: c.match}}}, s)
			if got := sel.Choice(at); got.Ours != c.ours || !c.ours && !strings.Contains(got.Why, "manages the NVSwitches") {
				t.Errorf("%+v, want it selected: %t", got, c.ours)
			}
			if got := sel.Choice(nic); !got.Ours {
				t.Errorf("an ordinary NIC: %+v", got)
			}
			if got := sel.Choice(unread); !got.Forbidden || !strings.Contains(got.Why, "can't be read (input/output error)") {
				t.Errorf("one that can't be read: %+v", got)
			}
		})
	}
}

package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

// Vendors, and classes of functions beside GPUs.
const (
	amd       pci.ID = 0x1002
	processor pci.ID = 0x1022 // AMD's id for what belongs to the CPU
	nvidia    pci.ID = 0x10de
	microchip pci.ID = 0x11f8

	display    pci.Class = 0x030000
	sound      pci.Class = 0x040300
	memory     pci.Class = 0x058000
	hostBridge pci.Class = 0x060000
	nvSwitch   pci.Class = 0x068000
	system     pci.Class = 0x088000
	usb        pci.Class = 0x0c0330
	encryption pci.Class = 0x108000
	signal     pci.Class = 0x118000
	sata       pci.Class = 0x010601
	other      pci.Class = 0x130000
)

// mateOf returns a function of a vendor on bus a0 or a later one, in IOMMU group 60.
func mateOf(vendor pci.ID, class pci.Class, driver string, bus, fn uint8) device.Function {
	f := on(pci.Address{Bus: 0xa0 + bus, Function: fn}, class, driver, 60)
	f.Vendor, f.Capabilities.Header = vendor, pci.HeaderNormal
	f.Type = device.Classify(class, pci.HeaderNormal, false, false)
	return f
}

// behind returns the function below a switch, whose upstream port has the bus.
func behind(f device.Function, bus uint8) device.Function {
	f.Switch = &pci.Address{Bus: bus}
	return f
}

// selecting returns the rules of GPUs and of the functions at the addresses.
func selecting(addrs ...string) *v1alpha1.NodeConfig {
	cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}}}}
	for _, text := range addrs {
		a, err := pci.ParseAddress(text)
		if err != nil {
			panic(err)
		}
		cfg.Devices = append(cfg.Devices, v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{a}}})
	}
	return cfg
}

// apu is an APU and the disks of its node in one group.
func apu() []device.Function {
	return []device.Function{
		mateOf(amd, display, "amdgpu", 0, 0), mateOf(amd, sound, "snd_hda_intel", 0, 1), mateOf(processor, encryption, "ccp", 0, 2),
		mateOf(processor, usb, "xhci_hcd", 0, 3), mateOf(processor, sound, "snd_hda_intel", 0, 4), mateOf(processor, sata, "ahci", 1, 0), mateOf(processor, sata, "ahci", 1, 1),
	}
}

func driverless(fns []device.Function) []device.Function {
	for i := range fns {
		fns[i].Driver = ""
	}
	return fns
}

// TestWhatGoesWithAGPU takes a GPU whose group has other functions. All those that need a rule and have none are named at once.
func TestWhatGoesWithAGPU(t *testing.T) {
	gpu := mateOf(nvidia, display, "nvidia", 0, 0)
	apart := mateOf(nvidia, display, "nvidia", 1, 0)
	apart.Group = new(61)
	for name, c := range map[string]struct {
		functions []device.Function
		config    *v1alpha1.NodeConfig
		skip      bool     // no reset
		lacking   []string // a rule; none if the plan is made
		takes     int
	}{
		"its audio":                       {functions: []device.Function{gpu, mateOf(nvidia, sound, "snd_hda_intel", 0, 1)}, takes: 2},
		"audio of another vendor":         {functions: []device.Function{gpu, mateOf(processor, sound, "snd_hda_intel", 0, 1)}, lacking: []string{"0000:a0:00.1"}},
		"audio of a card without GPU":     {functions: []device.Function{gpu, mateOf(nvidia, sound, "snd_hda_intel", 1, 1)}, lacking: []string{"0000:a1:00.1"}},
		"audio of a GPU in another group": {functions: []device.Function{gpu, apart, mateOf(nvidia, sound, "snd_hda_intel", 1, 1)}, lacking: []string{"0000:a1:00.1"}},
		"another GPU and its audio":       {functions: []device.Function{gpu, mateOf(amd, display, "amdgpu", 1, 0), mateOf(amd, sound, "snd_hda_intel", 1, 1)}, takes: 3},
		"a function without a driver":     {functions: []device.Function{gpu, mateOf(processor, other, "", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"a function on pci-stub":          {functions: []device.Function{gpu, mateOf(processor, other, "pci-stub", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"a function on vfio-pci":          {functions: []device.Function{gpu, mateOf(processor, other, "vfio-pci", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"the same by a rule":              {functions: []device.Function{gpu, mateOf(processor, other, "", 1, 0)}, config: selecting("0000:a1:00.0"), takes: 2},
		"its vendor's, for another use":   {functions: []device.Function{gpu, mateOf(nvidia, memory, "", 0, 1)}, lacking: []string{"0000:a0:00.1"}},
		"management without a driver":     {functions: []device.Function{gpu, mateOf(microchip, memory, "", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"a system function, no driver":    {functions: []device.Function{gpu, mateOf(microchip, system, "", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"signal processing, no driver":    {functions: []device.Function{gpu, mateOf(processor, signal, "", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"audio behind its switch":         {functions: []device.Function{behind(gpu, 0x90), behind(mateOf(nvidia, sound, "", 1, 0), 0x90)}, takes: 2},
		"the same on VFIO":                {functions: []device.Function{behind(gpu, 0x90), behind(mateOf(nvidia, sound, "vfio-pci", 1, 0), 0x90)}, takes: 2},
		"the same on the host's driver":   {functions: []device.Function{behind(gpu, 0x90), behind(mateOf(nvidia, sound, "snd_hda_intel", 1, 0), 0x90)}, lacking: []string{"0000:a1:00.0"}},
		"audio behind another switch":     {functions: []device.Function{behind(gpu, 0x90), behind(mateOf(nvidia, sound, "", 1, 0), 0x91)}, lacking: []string{"0000:a1:00.0"}},
		"another vendor's, same switch":   {functions: []device.Function{behind(gpu, 0x90), behind(mateOf(processor, sound, "", 1, 0), 0x90)}, lacking: []string{"0000:a1:00.0"}},
		"audio on the root, no driver":    {functions: []device.Function{gpu, mateOf(nvidia, sound, "", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"another vendor's audio, idle":    {functions: []device.Function{gpu, mateOf(processor, sound, "", 0, 1)}, takes: 2},
		"another vendor's audio, in use":  {functions: []device.Function{gpu, mateOf(processor, sound, "snd_hda_intel", 0, 1)}, lacking: []string{"0000:a0:00.1"}},
		"its USB, idle":                   {functions: []device.Function{gpu, mateOf(processor, 0x0c0330, "", 0, 1)}, lacking: []string{"0000:a0:00.1"}},
		"a host bridge without a driver":  {functions: []device.Function{gpu, mateOf(processor, hostBridge, "", 1, 0)}, takes: 1},
		"a disk without a driver":         {functions: []device.Function{gpu, mateOf(processor, sata, "", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"a switch's management":           {functions: []device.Function{gpu, mateOf(microchip, memory, "switchtec", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"the same without resets":         {functions: []device.Function{gpu, mateOf(microchip, memory, "switchtec", 1, 0)}, skip: true, lacking: []string{"0000:a1:00.0"}},
		"a non-transparent bridge":        {functions: []device.Function{gpu, mateOf(microchip, nvSwitch, "ntb_hw_switchtec", 1, 0)}, lacking: []string{"0000:a1:00.0"}},
		"two switches without a driver":   {functions: []device.Function{gpu, mateOf(nvidia, nvSwitch, "", 1, 0), mateOf(nvidia, nvSwitch, "", 1, 1)}, lacking: []string{"0000:a1:00.0", "0000:a1:00.1"}},
		"two switches by a rule": {
			functions: []device.Function{gpu, mateOf(nvidia, nvSwitch, "vfio-pci", 1, 0), mateOf(nvidia, nvSwitch, "vfio-pci", 1, 1)},
			config:    selecting("0000:a1:00.0", "0000:a1:00.1"), takes: 3,
		},
		"an APU's functions and disks": {functions: apu(), lacking: []string{"0000:a0:00.2", "0000:a0:00.3", "0000:a0:00.4", "0000:a1:00.0", "0000:a1:00.1"}},
		"the same without drivers":     {functions: driverless(apu()), lacking: []string{"0000:a0:00.2", "0000:a0:00.3", "0000:a0:00.4", "0000:a1:00.0", "0000:a1:00.1"}},
		"the same, disks by a rule":    {functions: apu(), config: selecting("0000:a1:00.0", "0000:a1:00.1"), lacking: []string{"0000:a0:00.2", "0000:a0:00.3", "0000:a0:00.4"}},
		"the same, all by a rule": {
			functions: apu(), config: selecting("0000:a0:00.2", "0000:a0:00.3", "0000:a0:00.4", "0000:a1:00.0", "0000:a1:00.1"), takes: 7,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := assemble(slices.Clone(c.functions))
			n := node(s)
			n.Selection = nodeconfig.Select(c.config, s)
			n.Snapshot.Host.IOMMUFD = true
			req := asking(s, pci.Address{Bus: 0xa0})
			if c.skip {
				req.Devices[0].VFIO.Reset = v1alpha1.ResetSkip
			}
			pl, err := plan.Make(req, n)
			if len(c.lacking) == 0 {
				if err != nil || len(pl.Functions) != c.takes {
					t.Fatalf("%d functions taken, %v; want %d", len(pl.Functions), err, c.takes)
				}
				return
			}
			var refused *rule.RefusedError
			if !errors.As(err, &refused) || refused.Verdicts[0].Code != rule.GroupMateNotSelected {
				t.Fatalf("Make = %v; want %s", err, rule.GroupMateNotSelected)
			}
			r := refused.Verdicts[0]
			if want := `addresses: ["` + strings.Join(c.lacking, `", "`) + `"]`; !strings.Contains(r.Fix, want) {
				t.Errorf("the fix does not say %s: %s", want, r.Fix)
			}
			for _, a := range c.lacking {
				if !strings.Contains(r.Text, a+" (class ") {
					t.Errorf("text is %q, want it to name %s with its class", r.Text, a)
				}
			}
			if r.Culprit.String() != c.lacking[0] || !strings.HasPrefix(r.Fix, "move ") {
				t.Errorf("culprit %s, fix %q; want the first one and a separate group before a rule", r.Culprit, r.Fix)
			}
		})
	}
}

// TestGroupThatTheNodeUses names all users at once.
func TestGroupThatTheNodeUses(t *testing.T) {
	fns := apu()
	for _, i := range []int{5, 6} {
		fns[i].Uses = []device.Use{{Kind: device.UseMount, Name: "sda1", Detail: "/data"}}
	}
	s := assemble(fns)
	_, err := plan.Make(asking(s, pci.Address{Bus: 0xa0}), node(s))
	var refused *rule.RefusedError
	if !errors.As(err, &refused) || !refused.Has(rule.GroupNotViable) {
		t.Fatalf("Make = %v; want %s", err, rule.GroupNotViable)
	}
	r := refused.Verdicts[0]
	if !strings.Contains(r.Text, "0000:a1:00.0") || !strings.Contains(r.Text, "0000:a1:00.1") || strings.Count(r.Fix, "stop that use") != 1 {
		t.Errorf("text is %q and fix %q, want both functions and \"stop that use\" once", r.Text, r.Fix)
	}
}

// TestAPUWithSeparateGroups: a claim of the GPU leaves the processor's functions with the host, even if the root disk is
// behind one.
func TestAPUWithSeparateGroups(t *testing.T) {
	fns := apu()[:5]
	for i := range fns {
		fns[i].Group, fns[i].ResetMethods = new(60+i), nil
	}
	fns[0].ResetMethods = []string{"device_specific"}
	fns[3].Uses = []device.Use{{Kind: device.UseMount, Name: "sda1", Detail: "/"}}
	s := assemble(fns)
	pl, err := plan.Make(asking(s, pci.Address{Bus: 0xa0}), node(s))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]pci.Address{{Bus: 0xa0}, {Bus: 0xa0, Function: 1}}, pl.Addresses()); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
}

// nvlinkBoard is a board of eight GPUs with four NVSwitches, each function in a group of its own.
func nvlinkBoard() *device.Snapshot {
	var fns []device.Function
	for i := range uint8(12) {
		class, driver := pci.Class(0x030200), "vfio-pci"
		if i >= 8 {
			class, driver = nvSwitch, "nvidia-nvswitch"
		}
		f := on(pci.Address{Bus: 0xb0 + i}, class, driver, 70+int(i))
		f.Capabilities.Header = pci.HeaderNormal
		fns = append(fns, f)
	}
	return assemble(fns)
}

// withSwitches selects the NVSwitches of a board too.
func withSwitches() *v1alpha1.NodeConfig {
	cfg := selecting()
	cfg.Devices = append(cfg.Devices, v1alpha1.DeviceRule{Name: "nvswitches", Match: v1alpha1.DeviceMatch{Vendors: []pci.ID{nvidia}, Classes: []string{"0680"}}})
	return cfg
}

// TestBoardWithItsSwitches: a claim may have all GPUs of a board and the switches between them, where a rule selects the
// switches.
func TestBoardWithItsSwitches(t *testing.T) {
	s := nvlinkBoard()
	all := addressesOf(s)
	n := node(s)
	if _, err := plan.Make(asking(s, all...), n); err == nil || !strings.Contains(err.Error(), "0000:bb:00.0 (driver nvidia-nvswitch) does not belong to kata-vfio") {
		t.Errorf("without a rule: Make = %v, want 0000:bb:00.0 refused as not kata-vfio's", err)
	}
	n.Selection = nodeconfig.Select(withSwitches(), s)
	pl, err := plan.Make(asking(s, all...), n)
	if err != nil {
		t.Fatal(err)
	}
	if len(pl.Devices) != 12 || pl.Devices[11].Name != "other-0000-bb-00-0" {
		t.Errorf("%d devices, the last one %+v; want 12 and other-0000-bb-00-0", len(pl.Devices), pl.Devices[len(pl.Devices)-1])
	}
	for _, fn := range pl.Functions {
		if fn.Role != plan.RoleDevice || !device.IsVFIO(fn.Target.Driver) {
			t.Errorf("%s is %+v, want a device with a VFIO driver as target", fn.Address, fn)
		}
	}
	if resets := pl.Resets(); len(resets) != 12 {
		t.Errorf("%d resets, want one for each function", len(resets))
	}
}

func addressesOf(s *device.Snapshot) []pci.Address {
	var all []pci.Address
	for i := range s.Functions {
		all = append(all, s.Functions[i].Address)
	}
	return all
}

// TestSwitchNeedsItsBoard: an NVSwitch without all GPUs and NVSwitches is refused to a claim, and is not a fault of the device.
func TestSwitchNeedsItsBoard(t *testing.T) {
	s := nvlinkBoard()
	n := node(s)
	n.Selection = nodeconfig.Select(withSwitches(), s)
	all := addressesOf(s)
	allow := true
	for name, c := range map[string]struct {
		ask     []pci.Address
		allow   bool
		lacking string // empty if the plan is made
	}{
		"one switch":                  {ask: all[8:9], lacking: "0000:b0:00.0, 0000:b1:00.0"},
		"all switches, seven GPUs":    {ask: all[1:], lacking: "0000:b0:00.0"},
		"all GPUs, three switches":    {ask: all[:11], lacking: "0000:bb:00.0"},
		"all GPUs, no switch":         {ask: all[:8]},
		"one GPU":                     {ask: all[:1]},
		"one switch, class allows it": {ask: all[8:9], allow: true},
	} {
		t.Run(name, func(t *testing.T) {
			req := asking(s, c.ask...)
			for i := range req.Devices {
				if c.allow {
					req.Devices[i].VFIO.AllowUnisolated = &allow
				}
			}
			_, err := plan.Make(req, n)
			var refused *rule.RefusedError
			switch {
			case c.lacking == "" && err != nil:
				t.Error(err)
			case c.lacking != "" && (!errors.As(err, &refused) || !refused.Has(rule.NotIsolated) || !strings.Contains(err.Error(), "does not have "+c.lacking)):
				t.Errorf("Make = %v; want a refusal for want of %s", err, c.lacking)
			}
		})
	}
	if as := plan.NewAssessor(n).Assess(&s.Functions[8]); len(as.Refusals) > 0 {
		t.Errorf("a switch is refused with %+v, want no refusal", as.Refusals)
	}
}

// TestBoardInOneGroupNeedsItsOwnGroups: no refusal of a board whose NVSwitches share a group points to a claim that is refused too.
func TestBoardInOneGroupNeedsItsOwnGroups(t *testing.T) {
	shared := nvlinkBoard().Functions
	for i := 8; i < 12; i++ {
		shared[i].Group = new(78)
	}
	s := assemble(shared)
	const separate, together = "enable ACS of the ports above 0000:b8:00.0", "request all GPUs and NVSwitches of the node in one claim"
	all := addressesOf(s)
	for name, c := range map[string]struct {
		ask          []pci.Address
		iommufd, hot bool
		want, never  string
	}{
		"one switch":                          {ask: all[8:9], want: separate, never: "claim one of the two"},
		"the whole board":                     {ask: all, want: "enable ACS of the ports above 0000:b9:00.0", never: "claim one of the two"},
		"one switch, iommufd and hot plug":    {ask: all[8:9], iommufd: true, hot: true, want: separate},
		"one switch, by the group's hot plug": {ask: all[8:9], hot: true, want: together, never: separate},
	} {
		t.Run(name, func(t *testing.T) {
			n := node(s)
			n.Selection, n.HotPlug = nodeconfig.Select(withSwitches(), s), c.hot
			s.Host.IOMMUFD = c.iommufd
			_, err := plan.Make(asking(s, c.ask...), n)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if !ok {
				t.Fatalf("Make = %v; want a refusal", err)
			}
			if fix := refused.Verdicts[0].Fix; !strings.Contains(fix, c.want) || c.never != "" && strings.Contains(fix, c.never) {
				t.Errorf("the fix says %q; want %q and not %q", fix, c.want, c.never)
			}
		})
	}
}

// TestDriveBehindVMDLeavesVMD: a drive that shares VMD's group is refused, even where a rule selects VMD, and no fix gives VMD away.
func TestDriveBehindVMDLeavesVMD(t *testing.T) {
	vmd := on(pci.Address{Bus: 0x5d, Device: 5, Function: 5}, 0x010400, "vmd", 80)
	drive := on(pci.Address{Domain: 0x10000, Bus: 1}, 0x010802, "nvme", 80)
	s := assemble([]device.Function{vmd, drive})
	drives := v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Types: []string{"nvme"}}}
	for name, c := range map[string]struct {
		rules []v1alpha1.DeviceRule
		want  rule.Code
	}{
		"drives":         {[]v1alpha1.DeviceRule{drives}, rule.GroupMateNotSelected},
		"drives and VMD": {[]v1alpha1.DeviceRule{drives, {Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{vmd.Address}}}}, rule.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			n := node(s)
			n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: c.rules}, s)
			_, err := plan.Make(asking(s, drive.Address), n)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if !ok || refused.Verdicts[0].Code != c.want {
				t.Fatalf("Make = %v; want %s", err, c.want)
			}
			ruletest.VerdictsAt(t, rule.AtPrepare, refused.Verdicts)
			if fix := refused.Verdicts[0].Fix; !strings.HasPrefix(fix, "disable VMD") || strings.Contains(fix, "addresses:") {
				t.Errorf("the fix is %q; want VMD disabled", fix)
			}
		})
	}
}

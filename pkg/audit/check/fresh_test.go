package check_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// freshServer is a node with eight GPUs that are with their host driver. No plugin
// has run there.
func freshServer(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	for i, bus := range []uint8{0x10, 0x18, 0x20, 0x28, 0x30, 0x38, 0x40, 0x48} {
		t.AddRootPort(bus)
		gpu := sysfstest.GPU(pci.Address{Bus: bus})
		gpu.Driver = "nvidia"
		t.Add(gpu)
		t.Devices[fmt.Sprintf("gpu%d", i)] = pci.Address{Bus: bus}
	}
	return t
}

// judgedOfFunctions are checks of ACS, ATS, resets and firmware, which every GPU that
// tenants can get is asked.
func judgedOfFunctions() []string {
	return []string{"ACS-001", "ACS-010", "IOM-002", "IOM-016", "RST-001"}
}

// TestFreshNodeIsJudgedByWhatItsConfigWouldPublish: nothing is published yet, and
// nothing says so by "not applicable".
func TestFreshNodeIsJudgedByWhatItsConfigWouldPublish(t *testing.T) {
	r := audit(t, freshServer(t))
	if want := (finding.Basis{By: finding.ByDefault, Functions: 8}); r.Basis == nil || *r.Basis != want {
		t.Errorf("judged by %v, want %v", r.Basis, want)
	}
	for _, f := range r.Findings {
		if slices.Contains(judgedOfFunctions(), f.ID) && f.State == finding.NotApplicable {
			t.Errorf("%s is %s: %s", f.ID, f.State, f.Text)
		}
	}
}

// TestFreshNodesConfigSaysWhatIsJudged: a function that the config leaves out is
// not asked, and a config that can't be read is not a reason to ask none.
func TestFreshNodesConfigSaysWhatIsJudged(t *testing.T) {
	const head = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\n"
	for about, c := range map[string]struct {
		config, problem string
		want            finding.Basis
	}{
		"two GPUs": {head + "devices:\n- match: {addresses: [\"0000:10:00.0\", \"0000:18:00.0\"]}\n", "", finding.Basis{By: finding.ByConfig, Functions: 2}},
		"none":     {head + "devices: []\n", "", finding.Basis{By: finding.ByConfig}},
		"damaged":  {"devices: [", "node.yaml", finding.Basis{By: finding.ByDefault, Functions: 8}},
	} {
		tree := freshServer(t)
		tree.Put("etc/kata-vfio/node.yaml", c.config)
		got := *audit(t, tree).Basis
		if (c.problem == "") != (got.Problem == "") || !strings.Contains(got.Problem, c.problem) {
			t.Errorf("%s: problem %q", about, got.Problem)
		}
		got.Problem = ""
		if got != c.want {
			t.Errorf("%s: judged by %v, want %v", about, got, c.want)
		}
	}
}

// TestExposureTellsWhatIsPublishedFromWhatWouldBe, for a fault of one GPU's port.
func TestExposureTellsWhatIsPublishedFromWhatWouldBe(t *testing.T) {
	for want, plant := range map[finding.Exposure]func(*board.Tree){
		finding.WouldBePublished: func(*board.Tree) {},
		finding.Published: func(t *board.Tree) {
			t.Put("run/kata-vfio/published.json", `{"bootID":"","devices":["`+t.Devices["gpu0"].String()+`"]}`)
		},
		finding.Allocated: func(t *board.Tree) { t.Give("t1", "train", t.Devices["gpu0"]) },
		finding.Unexposed: func(t *board.Tree) { t.Put("run/kata-vfio/published.json", `{"bootID":"","devices":[]}`) },
	} {
		tree := freshServer(t)
		plant(tree)
		tree.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
		for _, f := range audit(t, tree).Findings {
			if f.ID == "IOM-003" && f.Exposure != want {
				t.Errorf("the exposure is %q, want %q", f.Exposure, want)
			}
		}
	}
}

// TestPortThatShowsNoRedirectionIsNoPass: the kernel counts a port without ACS as
// isolating, by a quirk or a patch, which a person has to look into.
func TestPortThatShowsNoRedirectionIsNoPass(t *testing.T) {
	tree := board.New(t)
	port := pci.Address{Bus: 0x60, Device: 1}
	tree.AddRoot(sysfstest.Root{Bus: 0x60})
	tree.AddPort(sysfstest.Port{Address: port, Secondary: 0x61, NoACS: true, Group: 61})
	gpu := sysfstest.GPU(pci.Address{Bus: 0x61})
	gpu.Group = 62
	tree.Add(gpu)
	for _, f := range audit(t, tree).Findings {
		if f.ID != "ACS-001" {
			continue
		}
		if f.State != finding.Manual || !strings.Contains(f.Text, port.String()) {
			t.Errorf("%s: %s", f.State, f.Text)
		}
	}
}

// blackwell is a board whose NVSwitches are behind ConnectX functions, as B200 has
// them. vpd is what the first of those says.
func blackwell(vpd string) func(testing.TB) *board.Tree {
	return func(tb testing.TB) *board.Tree {
		tb.Helper()
		t := freshServer(tb)
		t.AddRootPort(0x50)
		gpu, manager := sysfstest.GPU(pci.Address{Bus: 0x50}), sysfstest.NIC(pci.Address{Bus: 0x58})
		gpu.Device, manager.Vendor, manager.Device = 0x2901, 0x15b3, 0x1021
		t.AddRootPort(0x58)
		t.Add(gpu, manager)
		t.Put("sys/bus/pci/devices/"+manager.Address.String()+"/vpd", vpd)
		t.Put("usr/share/nvidia/nvswitch/fabricmanager.cfg", "FABRIC_MODE=0\n")
		return t
	}
}

// TestSwitchesBehindConnectXFunctionsAreAFabric: they don't show as bridges, and the
// VPD of another ConnectX function makes none.
func TestSwitchesBehindConnectXFunctionsAreAFabric(t *testing.T) {
	for vpd, want := range map[string]finding.State{
		"\x82\x10\x00Nvidia ConnectX-7\x90\x20\x00VA\x06SW_MNG\x00": finding.Fail,
		"\x82\x10\x00Nvidia ConnectX-7\x90\x20\x00":                 finding.NotApplicable,
	} {
		for _, f := range audit(t, blackwell(vpd)(t)).Findings {
			if f.ID == "GPU-001" && f.State != want {
				t.Errorf("%q: %s: %s, want %s", vpd, f.State, f.Text, want)
			}
		}
	}
}

// TestPartitionsOfManagedSwitches: GPU-002 and GPU-021 judge such a board's partitions, too.
func TestPartitionsOfManagedSwitches(t *testing.T) {
	for _, c := range []struct {
		name, id string
		state    finding.State
		joined   bool
	}{
		{"its own partition", "GPU-002", finding.Pass, false},
		{"joined with a free GPU", "GPU-002", finding.Fail, true},
		{"each is a claim's", "GPU-021", finding.Pass, false},
	} {
		tree := blackwell("\x82\x10\x00Nvidia ConnectX-7\x90\x20\x00VA\x06SW_MNG\x00")(t)
		tree.AddRootPort(0x70)
		free := sysfstest.GPU(pci.Address{Bus: 0x70})
		free.Device = 0x2901
		tree.Add(free)
		tree.Devices = map[string]pci.Address{"held": {Bus: 0x50}, "free": free.Address}
		tree.Put("usr/share/nvidia/nvswitch/fabricmanager.cfg", "FABRIC_MODE=1\n")
		tree.Give("t1", "train", tree.Devices["held"])
		putMap(tree, "held", "free")
		putState(tree, &fabric.State{Partitions: fabric.List{partition(1, c.joined, 1, 2), partition(8, !c.joined, 1)}})
		found := false
		for _, f := range audit(t, tree).Findings {
			if f.ID == c.id {
				found = true
				if f.State != c.state {
					t.Errorf("%s: %s is %s: %s, want %s", c.name, c.id, f.State, f.Text, c.state)
				}
			}
		}
		if !found {
			t.Errorf("%s: no finding %s", c.name, c.id)
		}
	}
}

// TestChecksReadFewFilesPerFunction: the scan has read the functions. Evidence of what passes is read for the first few only.
func TestChecksReadFewFilesPerFunction(t *testing.T) {
	reads := func(functions int) int64 {
		tree := board.New(t)
		tree.Scale(functions)
		fsys, err := sysfs.Open(tree.Root())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = fsys.Close() }()
		s, err := inventory.Scan(t.Context(), fsys)
		if err != nil {
			t.Fatal(err)
		}
		var count atomic.Int64
		tapped := fsys.WithTap(func(sysfs.Access) { count.Add(1) })
		check.Run(facts.New(tapped, s), checks(t), check.Options{Today: "2026-11-22"})
		return count.Load()
	}
	small, large := reads(128), reads(256)
	if most := int64(64); large-small > most {
		t.Errorf("checks of 128 functions read %d files, of 256 %d: at most %d more are expected", small, large, most)
	}
}

// BenchmarkRun judges a node of 2,048 functions, each another tenant's, without
// the scan before it. With -short it is a small node.
func BenchmarkRun(b *testing.B) {
	tree, functions := board.New(b), 2048
	if testing.Short() {
		functions = 64
	}
	for i, a := range tree.Scale(functions) {
		tree.Give(fmt.Sprintf("t%d", i), "c", a)
	}
	fsys, err := sysfs.Open(tree.Root())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = fsys.Close() }()
	s, err := inventory.Scan(b.Context(), fsys)
	if err != nil {
		b.Fatal(err)
	}
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	all := checks(b)
	b.ReportAllocs()
	for b.Loop() {
		check.Run(facts.New(fsys, s), all, check.Options{Profile: profile, Today: "2026-11-22"})
	}
}

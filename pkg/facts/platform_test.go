package facts_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// open returns the node of a tree with a snapshot that knows its IOMMUs alone.
func open(t testing.TB, tree *sysfstest.Kernel, iommus ...string) *facts.Node {
	t.Helper()
	fsys, err := sysfs.Open(tree.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	return facts.New(fsys, &device.Snapshot{Host: device.Host{IOMMUs: iommus}})
}

func TestDMARsFlags(t *testing.T) {
	table := func(flags string) string {
		return "DMAR" + strings.Repeat("\x00", 33) + flags + strings.Repeat("\x00", 10)
	}
	for _, c := range []struct {
		name, content string
		status        facts.Status
		want          facts.DMAR
	}{
		{"all", table("\x07"), facts.Present, facts.DMAR{Flags: 7, InterruptRemapping: true, X2APICOptOut: true, DMAOptIn: true}},
		{"none", table("\x00"), facts.Present, facts.DMAR{}},
		{"cut off", "DMAR\x00", facts.Broken, facts.DMAR{}},
		{"another table", strings.Replace(table("\x07"), "DMAR", "SSDT", 1), facts.Broken, facts.DMAR{}},
		{"no table", "", facts.Absent, facts.DMAR{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := sysfstest.New(t)
			if c.content != "" {
				tree.PutFile("sys/firmware/acpi/tables/DMAR", c.content)
			}
			got, fact := open(t, tree).DMAR()
			if got != c.want || fact.Status != c.status {
				t.Errorf("%+v, status %v; want %+v, %v", got, fact.Status, c.want, c.status)
			}
			if strings.ContainsAny(fact.Value, "\x00\x07") {
				t.Errorf("the table is in the evidence: %q", fact.Value)
			}
		})
	}
}

func TestVTdUnitsAreReadWithWhatIsBehindThem(t *testing.T) {
	tree := sysfstest.New(t)
	gpu := tree.AddGPU(0x3b)
	units := open(t, tree, "dmar0", "ivhd0").VTdUnits()
	if len(units) != 1 {
		t.Fatalf("%d units, want one", len(units))
	}
	want := facts.VTdUnit{
		Name: "dmar0", RemapsInterrupts: true, Functions: []pci.Address{{Bus: 0x3a, Device: 1}, gpu},
		Extended: facts.Fact{Path: "/sys/class/iommu/dmar0/intel-iommu/ecap", Value: "f050da", How: "read"},
	}
	if diff := cmp.Diff(want, units[0]); diff != "" {
		t.Errorf("unit (-want +got):\n%s", diff)
	}
}

func TestFatalErrorsAndCommandAreReadOfAFunction(t *testing.T) {
	tree := sysfstest.New(t)
	f := &device.Function{Address: tree.AddGPU(0x3b)}
	dir := "sys/bus/pci/devices/" + f.Address.String()
	tree.PutFile(dir+"/aer_dev_fatal", "DLP 3\nTOTAL_ERR_FATAL 18446744073709551615\n")
	n := open(t, tree)
	if total, fact := n.FatalErrors(f); total != 1<<64-1 || !fact.OK() {
		t.Errorf("%d fatal errors, %+v", total, fact)
	}
	if command, fact := n.Command(f); command != 0x0006 || fact.Value != "command 0x0006" {
		t.Errorf("command %#x, %+v", command, fact)
	}
	f.Locked = true
	if _, fact := n.Command(f); fact.OK() {
		t.Error("the configuration space of a locked function was read")
	}
}

func FuzzTablesAndRegisters(f *testing.F) {
	f.Add("DMAR"+strings.Repeat("\x00", 44), "f050da", "TOTAL_ERR_FATAL 1", "x intremap=\"off nosid")
	tree := sysfstest.New(f)
	fn := &device.Function{Address: tree.AddGPU(0x3b)}
	f.Fuzz(func(t *testing.T, table, ecap, errors, cmdline string) {
		tree.PutFile("sys/firmware/acpi/tables/DMAR", table)
		tree.PutFile("sys/firmware/acpi/tables/IVRS", table)
		tree.PutFile("sys/devices/virtual/iommu/dmar0/intel-iommu/ecap", ecap)
		tree.PutFile("sys/bus/pci/devices/"+fn.Address.String()+"/aer_dev_fatal", errors)
		tree.PutFile("proc/cmdline", cmdline)
		tree.PutFile("run/kata-vfio/acs.json", table)
		n := open(t, tree, "dmar0")
		n.DMAR()
		n.IVRSRemaps()
		n.VTdUnits()
		n.FatalErrors(fn)
		n.Baseline()
		n.RunningArguments("intremap")
	})
}

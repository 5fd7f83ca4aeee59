package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func iommuFaults() []fault {
	return slices.Concat([]fault{
		{rule: "IOM-001", about: "no IOMMU", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("sys/class/iommu")
		}},
		{rule: "IOM-002", about: "a group made up by VFIO", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			group, _ := t.Group(t.Devices["gpu0"])
			t.Put(groupFile(group, "type"), "unknown\n") // as of each group without a default domain
			t.Put(groupFile(group, "name"), "vfio-noiommu\n")
		}},
		{rule: "IOM-003", about: "on", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
		}},
		{rule: "IOM-003", about: "on after the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/vfio.conf", "options vfio enable_unsafe_noiommu_mode=1\n")
		}},
	}, interruptFaults(), groupFaults(), dmaFaults(), deviceFaults())
}

func interruptFaults() []fault {
	unsafe := func(module string) func(*board.Tree) {
		return func(t *board.Tree) { t.SetParameter(module, "allow_unsafe_interrupts", "Y") }
	}
	cmdline := func(args string) func(*board.Tree) {
		return func(t *board.Tree) { t.Put("proc/cmdline", args+"\n") }
	}
	return []fault{
		{rule: "IOM-005", about: "not remapped", board: board.Server, plant: func(t *board.Tree) { t.SetIRQChips("IO-APIC", "PCI-MSI") }},
		{rule: "IOM-005", about: "one function's is not", board: board.Server, plant: func(t *board.Tree) {
			t.SetIRQChips("IR-PCI-MSI-0000:3b:00.0", "PCI-MSIX-0000:41:00.0")
		}},
		{rule: "IOM-005", about: "no MSI in use", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) { t.SetIRQChips("IR-IO-APIC", "DMAR-MSI") }},
		{rule: "IOM-006", about: "on", board: board.Server, plant: unsafe("vfio_iommu_type1")},
		{rule: "IOM-006", about: "on after the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/vfio.conf", "options vfio-iommu-type1 allow_unsafe_interrupts=1\n")
		}},
		{rule: "IOM-007", about: "on", board: board.Server, plant: unsafe("iommufd")},
		{rule: "IOM-008", about: "remapping off", board: board.Server, plant: cmdline("ro intremap=off")},
		{rule: "IOM-008", about: "no source ids", board: board.Server, plant: cmdline("ro intremap=no_x2apic_optout,nosid")},
		{rule: "IOM-008", about: "off after the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("boot/loader/entries/linux.conf", "title Linux\noptions root=/dev/sda1 intremap=off\n")
		}},
		{rule: "IOM-008", about: "no command line", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) { t.Delete("proc/cmdline") }},
		{rule: "IOM-009", about: "not offered", board: board.Server, plant: func(t *board.Tree) { t.PutDMAR(0x04) }},
		{rule: "IOM-009", about: "no table but rubbish", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("sys/firmware/acpi/tables/DMAR", "DMAR")
		}},
		{rule: "IOM-010", about: "a unit without", board: board.Server, plant: func(t *board.Tree) {
			t.Put("sys/devices/virtual/iommu/dmar0/intel-iommu/ecap", "f050d2\n")
		}},
		{rule: "IOM-010", about: "a register that is none", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("sys/devices/virtual/iommu/dmar0/intel-iommu/ecap", "zz\n")
		}},
	}
}

func dmaFaults() []fault {
	const type1 = "vfio_iommu_type1"
	identity := func(name string) func(*board.Tree) { return groupType(name, "identity") }
	cmdline := func(about, args string) fault {
		return fault{rule: "IOM-011", about: about, board: board.Server, plant: func(t *board.Tree) { t.Put("proc/cmdline", args+"\n") }}
	}
	return []fault{
		cmdline("off", "ro iommu=off"), cmdline("soft", "ro iommu=soft"), cmdline("Intel's off", "ro intel_iommu=off"),
		cmdline("without the graphics", "ro intel_iommu=on,igfx_off"), cmdline("AMD's off", "ro amd_iommu=off"),
		{rule: "IOM-012", about: "not asked for", board: board.Server, plant: func(t *board.Tree) { t.Put("proc/cmdline", "ro quiet\n") }},
		{rule: "IOM-013", about: "identity", board: board.Server, device: "gpu0", plant: identity("gpu0")},
		{rule: "IOM-013", about: "not told", board: board.Server, device: "gpu0", state: finding.Unknown, plant: func(t *board.Tree) {
			group, _ := t.Group(t.Devices["gpu0"])
			t.Delete(groupFile(group, "type"))
		}},
		{rule: "IOM-014", about: "a PF's identity", board: board.Server, device: "nic0", plant: identity("nic0")},
		{rule: "IOM-014", about: "a RAID controller's identity", board: board.VM, device: "disk0", plant: identity("disk0")},
		{rule: "IOM-014", about: "no IOMMU", board: withoutIOMMU, plant: func(*board.Tree) {}},
		{rule: "IOM-015", about: "lazy", board: board.Server, device: "nic0", plant: groupType("nic0", "DMA-FQ")},
		{rule: "IOM-021", about: "no bound", board: board.Server, plant: func(t *board.Tree) { t.SetParameter(type1, "dma_entry_limit", "4294967295") }},
		{rule: "IOM-021", about: "VFIO's default for confidential guests", board: board.Server, state: finding.Manual, plant: func(t *board.Tree) {
			t.AddToKata(confidentialGuest)
		}},
		{rule: "IOM-021", about: "none after the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/vfio.conf", "options vfio_iommu_type1 dma_entry_limit=1000000\n")
		}},
		{rule: "IOM-023", about: "nobody confines it", board: board.Server, plant: func(t *board.Tree) { t.PutDMAR(0x01) }},
		{rule: "IOM-023", about: "AMD's firmware does not", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("sys/firmware/acpi/tables/DMAR")
			t.Put("sys/firmware/acpi/tables/IVRS", "IVRS"+strings.Repeat("\x00", 32)+"\x01\x00\x00\x00....")
		}},
	}
}

// withoutIOMMU has a NIC that nothing translates.
func withoutIOMMU(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.WithoutIOMMU()
	t.AddNIC(0x5e, 0)
	return t
}

func groupType(name, kind string) func(*board.Tree) {
	return func(t *board.Tree) {
		group, _ := t.Group(t.Devices[name])
		t.SetGroupType(group, kind)
	}
}

func deviceFaults() []fault {
	debug := func(t *board.Tree) {
		t.Put("sys/kernel/debug/iommu/intel/dmar_translation_struct", "")
		t.Mode("sys/kernel/debug", 0o755)
	}
	return []fault{
		{rule: "IOM-004", about: "tainted", board: board.Server, plant: func(t *board.Tree) { t.Put("proc/sys/kernel/tainted", "4160\n") }},
		{rule: "IOM-004", about: "not a number", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) { t.Put("proc/sys/kernel/tainted", "?\n") }},
		{rule: "IOM-019", about: "ATS on", board: board.Switch, device: "spare", plant: func(t *board.Tree) { t.EnableATS(t.Devices["spare"]) }},
		{rule: "IOM-019", about: "not readable", board: board.Switch, state: finding.Unknown, plant: func(t *board.Tree) { t.CutConfig(t.Devices["spare"]) }},
		{rule: "IOM-020", about: "page requests", board: sharedAddressing(pci.Capabilities{PRI: &pci.Switchable{Enabled: true}}), device: "gpu", plant: func(*board.Tree) {}},
		{rule: "IOM-020", about: "PASIDs", board: sharedAddressing(pci.Capabilities{PASID: &pci.Switchable{Enabled: true}}), device: "gpu", plant: func(*board.Tree) {}},
		{rule: "IOM-024", about: "open to all", board: board.Server, plant: debug},
	}
}

// sharedAddressing has one GPU with more capabilities.
func sharedAddressing(more pci.Capabilities) func(testing.TB) *board.Tree {
	return func(tb testing.TB) *board.Tree {
		tb.Helper()
		t := board.New(tb)
		t.AddRootPort(0x61)
		gpu := sysfstest.GPU(pci.Address{Bus: 0x61})
		gpu.Driver, gpu.Capabilities.PRI, gpu.Capabilities.PASID = "vfio-pci", more.PRI, more.PASID
		t.Add(gpu)
		t.Devices["gpu"] = gpu.Address
		return t
	}
}

func groupFaults() []fault {
	return []fault{
		{rule: "IOM-016", about: "a region of the firmware's", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			group, _ := t.Group(t.Devices["gpu0"])
			t.SetReserved(group, "0x00000000ba000000 0x00000000bbffffff direct")
		}},
		{rule: "IOM-017", about: "two tenants", board: shared, plant: func(t *board.Tree) { t.Give("t2", "second", t.Devices["audio"]) }},
		{rule: "IOM-018", about: "a host driver beside a tenant", board: shared, device: "audio", plant: func(*board.Tree) {}},
		{rule: "IOM-026", about: "two GPUs below a port without ACS", board: joined, plant: func(*board.Tree) {}},
		{rule: "IOM-026", about: "a card with its companions", board: board.Desktop, state: finding.Pass, plant: func(*board.Tree) {}},
	}
}

// joined has two GPUs that nobody has in one group, below a port without ACS.
func joined(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.AddRoot(sysfstest.Root{Bus: 0x60})
	t.AddPort(sysfstest.Port{Address: pci.Address{Bus: 0x60, Device: 1}, Secondary: 0x61, NoACS: true, Group: 61})
	left, right := sysfstest.GPU(pci.Address{Bus: 0x61}), sysfstest.GPU(pci.Address{Bus: 0x61, Device: 1})
	left.Group, right.Group = 61, 61
	t.Add(left, right)
	return t
}

// TestMergedGroupIsToldBeforeAnybodyHasIt: which devices, which port, and what
// parts them.
func TestMergedGroupIsToldBeforeAnybodyHasIt(t *testing.T) {
	for _, f := range audit(t, joined(t)).Findings {
		if f.ID != "IOM-026" {
			continue
		}
		for _, want := range []string{"0000:61:00.0", "0000:61:01.0", "0000:60:01.0"} {
			if !strings.Contains(f.Text, want) {
				t.Errorf("%s is not named: %s", want, f.Text)
			}
		}
		if f.Exposure != finding.WouldBePublished || !strings.Contains(f.Remediation, "ACS") {
			t.Errorf("exposure %s, fix %s", f.Exposure, f.Remediation)
		}
	}
}

// shared has a GPU on VFIO in one group with its audio function on ALSA.
func shared(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.AddRootPort(0x61)
	gpu, audio := sysfstest.GPU(pci.Address{Bus: 0x61}), sysfstest.Audio(pci.Address{Bus: 0x61, Function: 1})
	gpu.Driver, gpu.Group, audio.Group = "vfio-pci", 61, 61
	t.Add(gpu, audio)
	t.Devices["gpu"], t.Devices["audio"] = gpu.Address, audio.Address
	t.Give("t1", "first", gpu.Address)
	t.GiveBack(audio.Address)
	return t
}

func TestUnsafeInterruptsWeighByRemapping(t *testing.T) {
	for _, c := range []struct {
		chip string
		want rule.Severity
	}{{"IR-PCI-MSI", rule.Medium}, {"PCI-MSI", rule.Critical}, {"IO-APIC", rule.Critical}} {
		tree := board.Server(t)
		tree.SetParameter("vfio_iommu_type1", "allow_unsafe_interrupts", "Y")
		tree.SetIRQChips(c.chip)
		if found := of(audit(t, tree), "IOM-006"); len(found) != 1 || found[0].Severity != c.want {
			t.Errorf("with chip %s: %+v, want severity %s", c.chip, found, c.want)
		}
	}
}

func TestArmsInterruptsAreNotCalledUnsafeByTheirName(t *testing.T) {
	for chip, want := range map[string]finding.State{"PCI-MSI": finding.Unknown, "ITS-PCI-MSI": finding.Pass} {
		tree := board.Server(t)
		tree.Delete("sys/class/iommu/dmar0")
		tree.Put("sys/class/iommu/smmu3.0x0000000002b40000/x", "")
		tree.SetIRQChips(chip)
		if found := of(audit(t, tree), "IOM-005"); len(found) != 1 || found[0].State != want {
			t.Errorf("with chip %s: %+v, want %s", chip, found, want)
		}
	}
}

func TestArgumentSaysWhatTheNextBootBrings(t *testing.T) {
	const grub = "GRUB_CMDLINE_LINUX=\"intremap=off\"\n"
	for _, c := range []struct{ name, cmdline, grub, want string }{
		{"fixed on disk", "ro intremap=off", "GRUB_CMDLINE_LINUX=\"ro\"\n", "removed from the boot loader's files, reboot pending"},
		{"on disk too", "ro intremap=off", grub, "also set on disk: it returns with every boot"},
		{"on disk only", "ro", grub, "comes with the next boot"},
		{"disk not known", "ro intremap=off", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := board.Server(t)
			tree.Put("proc/cmdline", c.cmdline+"\n")
			if c.grub != "" {
				tree.Put("etc/default/grub", c.grub)
			}
			found := of(audit(t, tree), "IOM-008")
			if len(found) != 1 || found[0].State != finding.Fail || found[0].Pending != c.want {
				t.Errorf("found %+v, want pending %q", found, c.want)
			}
		})
	}
}

// TestIOMMUTuningNeedsIOMMU: without an IOMMU, the only advice is to enable it.
func TestIOMMUTuningNeedsIOMMU(t *testing.T) {
	failed := 0
	for _, f := range audit(t, withoutIOMMU(t)).Findings {
		if f.State != finding.Fail || !strings.HasPrefix(f.ID, "IOM-01") && f.ID != "IOM-002" {
			continue
		}
		failed++
		if strings.Contains(f.Remediation, "passthrough") || strings.Contains(f.Remediation, "iommu=pt") || strings.Contains(f.Remediation, "noiommu") {
			t.Errorf("%s: %s: %s", f.ID, f.Text, f.Remediation)
		}
	}
	if failed == 0 {
		t.Error("nothing fails")
	}
}

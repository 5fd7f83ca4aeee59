package check_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// asArm has the node's IOMMU be one of Arm's.
func asArm(t *board.Tree) { t.Put("sys/class/iommu/smmu3.0x0000000011000000", "") }

// asGrace adds a GPU below a root port of NVIDIA's CPU.
func asGrace(t *board.Tree) {
	t.AddPort(sysfstest.Port{Address: pci.Address{Bus: 0x20, Device: 3}, Secondary: 0x40, Vendor: 0x10de, Device: 0x22b8})
	t.Devices["coherent"] = pci.Address{Bus: 0x40}
	t.Add(sysfstest.GPU(t.Devices["coherent"]))
	asArm(t)
}

// TestAdviceFitsTheMachine: what a finding says to do suits the node that it is about.
func TestAdviceFitsTheMachine(t *testing.T) {
	noATS := []string{"noats"}
	x86 := []string{"iommu=pt", "RMRR", "legacy USB", "intel_iommu"}
	direct := func(t *board.Tree) {
		f, _ := t.Scan().Function(t.Devices["spare"])
		t.Put(groupFile(*f.Group, "reserved_regions"), "0x00000000f8000000 0x00000000f9ffffff direct\n")
	}
	identity := func(t *board.Tree) {
		f, _ := t.Scan().Function(t.Devices["spare"])
		t.Put(groupFile(*f.Group, "type"), "identity\n")
	}
	for name, tt := range map[string]struct {
		rule  string
		plant []func(*board.Tree)
		want  string
		never []string
	}{
		"ATS of a card":                       {"IOM-019", []func(*board.Tree){enableATSOf("spare")}, "boot with `pci=noats`", []string{"waiver"}},
		"ATS of a coherent GPU":               {"IOM-019", []func(*board.Tree){asGrace, enableATSOf("coherent")}, "waiver of IOM-019", noATS},
		"ATS of a card beside a coherent GPU": {"IOM-019", []func(*board.Tree){enableATSOf("left"), asGrace}, "in the device's firmware", noATS},
		"translated requests on such a node":  {"ACS-003", []func(*board.Tree){enableATSOf("left"), directTranslated, asGrace}, "setpci", noATS},
		"translated requests on another node": {"ACS-003", []func(*board.Tree){enableATSOf("left"), directTranslated}, "pci=noats", nil},
		"an identity domain on Arm":           {"IOM-013", []func(*board.Tree){identity, asArm}, "iommu.passthrough=0", x86},
		"an identity domain on x86":           {"IOM-013", []func(*board.Tree){identity}, "iommu=pt", nil},
		"a direct region on Arm":              {"IOM-016", []func(*board.Tree){direct, asArm}, "IORT", x86},
		"no IOMMU on Arm":                     {"IOM-001", []func(*board.Tree){noIOMMU, withFile("proc/sys/kernel/arch", "aarch64\n")}, "the SMMU in the firmware setup", []string{"VT-d", "AMD-Vi", "intel_iommu", "VM", "Xen"}},
		"no IOMMU on x86":                     {"IOM-001", []func(*board.Tree){noIOMMU, withFile("proc/sys/kernel/arch", "x86_64\n")}, "VT-d or AMD-Vi in the firmware setup", []string{"SMMU", "VM", "Xen"}},
		"no IOMMU in a VM":                    {"IOM-001", []func(*board.Tree){noIOMMU, withFile("proc/cpuinfo", "flags\t: fpu hypervisor\n")}, "use a bare-metal node", []string{"firmware setup", "Xen"}},
		"no IOMMU in Xen's dom0":              {"IOM-001", []func(*board.Tree){noIOMMU, withFile("proc/xen/capabilities", "control_d\n")}, "start the kernel without Xen", []string{"firmware setup", "VM"}},
		"a direct region on x86":              {"IOM-016", []func(*board.Tree){direct}, "RMRR", []string{"IORT"}},
		"more mappings than VFIO's default":   {"IOM-021", []func(*board.Tree){moreMappings}, "echo 65535", []string{"waiver"}},
		"more mappings for confidential guests": {
			"IOM-021", []func(*board.Tree){moreMappings, func(t *board.Tree) { t.AddToKata(confidentialGuest) }}, "waiver of IOM-021", nil,
		},
		"an unsigned module": {"HOST-003", []func(*board.Tree){func(t *board.Tree) { t.Put("proc/sys/kernel/tainted", "12288\n") }}, "module.sig_enforce=1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Switch(t)
			for _, plant := range tt.plant {
				plant(tree)
			}
			found := false
			for _, f := range audit(t, tree).Findings {
				if f.ID != tt.rule || f.State != finding.Fail {
					continue
				}
				found = found || strings.Contains(f.Remediation, tt.want)
				for _, word := range tt.never {
					if strings.Contains(f.Remediation, word) {
						t.Errorf("%q says %q", f.Remediation, word)
					}
				}
				if !strings.Contains(f.Remediation, tt.want) {
					t.Errorf("%q does not say %q", f.Remediation, tt.want)
				}
			}
			if !found {
				t.Errorf("%s does not fail with advice that says %q", tt.rule, tt.want)
			}
		})
	}
}

func enableATSOf(name string) func(*board.Tree) {
	return func(t *board.Tree) { t.EnableATS(t.Devices[name]) }
}

func directTranslated(t *board.Tree) { t.SetACS(t.Devices["left/port"], acsDirect) }

// noIOMMU has the kernel find no IOMMU.
func noIOMMU(t *board.Tree) {
	t.Delete("sys/class/iommu")
}

func withFile(name, content string) func(*board.Tree) {
	return func(t *board.Tree) { t.Put(name, content) }
}

func moreMappings(t *board.Tree) {
	t.SetParameter("vfio_iommu_type1", "dma_entry_limit", "4194304")
}

// TestIDsOfVFIO: a function on vfio-pci has a visible reason where the module's IDs match it, as the kernel reads them.
func TestIDsOfVFIO(t *testing.T) {
	for ids, explains := range map[string]bool{
		"8086:10ca":      true,
		"8086:10CA:8086": true,
		"0x8086:0x10ca":  true,
		"8086:ffffffff":  true,
		"8086:ffffffff:ffffffff:ffffffff:00020000:ffff0000": true,
		"8086:ffffffff:ffffffff:ffffffff:00030000:ffff0000": false,
		"10de:2330,8086:10ca":                               true,
		"8086:ca":                                           false,
		"8086":                                              false,
		"10de:ffffffff":                                     false,
		"8086:10ca:1234":                                    false,
	} {
		t.Run(ids, func(t *testing.T) {
			tree := board.Server(t)
			tree.Put(bindFree(tree)+"/driver_override", "(null)\n")
			tree.Boot("vfio-pci.ids=" + ids)
			f, _ := tree.Scan().Function(tree.Devices["nic0/vf3"])
			if f.Driver != device.GenericVFIO {
				t.Fatalf("driver %s", f.Driver)
			}
			fails := false
			for _, said := range audit(t, tree).Findings {
				fails = fails || said.ID == "VFIO-004" && said.State == finding.Fail
			}
			if fails == explains {
				t.Errorf("%s (%s:%s, subsystem %s:%s): VFIO-004 fails %t", f.Address, f.Vendor, f.Device, f.SubVendor, f.SubDevice, fails)
			}
		})
	}
}

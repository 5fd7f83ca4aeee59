package isolation_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestFixFitsTheMachine: what gets a node an IOMMU or interrupt remapping names only what its machine has.
func TestFixFitsTheMachine(t *testing.T) {
	firmware, x86, arm := "in the firmware setup", []string{"VT-d", "AMD-Vi", "intel_iommu", "intremap"}, []string{"SMMU", "smmu", "GIC"}
	for name, row := range map[string]struct {
		machine device.Machine
		want    string
		never   []string
	}{
		"x86":                {device.Machine{Arch: device.X86}, "VT-d or AMD-Vi", append(arm, "VM", "Xen")},
		"Arm":                {device.Machine{Arch: device.Arm}, "SMMU in the firmware setup", append(x86, "VM", "Xen")},
		"a VM":               {device.Machine{Arch: device.X86, Hypervisor: device.VM}, "bare-metal", append(arm, firmware, "Xen")},
		"a VM on Arm":        {device.Machine{Arch: device.Arm, Hypervisor: device.VM}, "iommu=smmuv3", append(x86, firmware, "Xen", "intel-iommu")},
		"a guest of Xen":     {device.Machine{Arch: device.X86, Hypervisor: device.XenGuest}, "bare-metal", append(arm, firmware, "without Xen")},
		"Xen's dom0":         {device.Machine{Arch: device.X86, Hypervisor: device.XenDom0}, "without Xen", append(arm, firmware, "VM")},
		"an unknown machine": {device.Machine{}, "A VM needs a virtual IOMMU", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &device.Snapshot{Host: device.Host{Machine: row.machine}}
			if fix := isolation.FixOn(s, rule.NoIOMMUGroup); !strings.Contains(fix, row.want) {
				t.Errorf("%q does not say %q", fix, row.want)
			}
			for _, code := range []rule.Code{rule.NoIOMMUGroup, rule.NoIOMMUMode, rule.NoInterruptRemapping} {
				fix := isolation.FixOn(s, code)
				if code == rule.NoIOMMUMode && !strings.Contains(fix, "enable_unsafe_noiommu_mode") {
					t.Errorf("FixOn %s = %q, want it to turn no-IOMMU mode off", code, fix)
				}
				for _, word := range row.never {
					if strings.Contains(fix, word) {
						t.Errorf("FixOn %s = %q, want it without %q", code, fix, word)
					}
				}
			}
		})
	}
}

// TestFixesOfACSNameTheCase: the two halves of the code's fix are for a port and for a device, without what stands for them.
func TestFixesOfACSNameTheCase(t *testing.T) {
	boot, slot := isolation.ACSAtBootBy("1xxx@0000:3a:00.0"), isolation.OtherSlotFix("0000:3b:00.0")
	if !strings.Contains(boot, "pci=config_acs=1xxx@0000:3a:00.0") || strings.Contains(boot, "<") || strings.Contains(boot, "slot") {
		t.Errorf("got %q for a port, want what switches its ACS on", boot)
	}
	if !strings.HasPrefix(slot, "move 0000:3b:00.0 to a slot whose ports have ACS") {
		t.Errorf("got %q for a device, want another slot", slot)
	}
}

// TestFixAt: each placeholder is in the text of its code, so that a fix names the path of the case.
func TestFixAt(t *testing.T) {
	for code, placeholder := range map[rule.Code]string{
		rule.ConfigSpaceDead:         "/sys/bus/pci/devices/<address>/remove",
		rule.NoReset:                 "echo default > reset_method",
		rule.UnsafeInterruptsAllowed: "/sys/module/<module>/parameters/allow_unsafe_interrupts",
		rule.IdentityDefaultDomain:   "/sys/kernel/iommu_groups/<group>/type",
	} {
		got := isolation.FixAt(code, placeholder, "/sys/it")
		if !strings.Contains(got, "/sys/it") || strings.Contains(got, "<") {
			t.Errorf("%s: got %q, want one that names /sys/it", code, got)
		}
	}
}

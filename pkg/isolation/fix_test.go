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
					t.Errorf("%q leaves no-IOMMU mode on", fix)
				}
				for _, word := range row.never {
					if strings.Contains(fix, word) {
						t.Errorf("%s: %q says %q", code, fix, word)
					}
				}
			}
		})
	}
}

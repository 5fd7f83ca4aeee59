package isolation_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// Operators act on these sentences, so the ones that matter most are pinned.
func TestReasonsTellWhatToDo(t *testing.T) {
	unsafe := host(node(plainGPU()...), func(h *device.Host) {
		h.IRQChips = []string{"PCI-MSI"}
		h.UnsafeInterrupts = []string{"module/iommufd/parameters/allow_unsafe_interrupts"}
	})
	cases := []struct {
		name string
		node *device.Snapshot
		of   string
		code isolation.Code
		want isolation.Reason
	}{
		{
			"a bridge's driver", node(bridged("shpchp")...), "0000:22:01.0", isolation.NotViable,
			isolation.Reason{
				Severity: isolation.High, Text: "bridge 0000:21:00.0 in IOMMU group 2 is bound to shpchp, which keeps the group's DMA for the host",
				Fix:      "unbind 0000:21:00.0 from shpchp: `echo 0000:21:00.0 > /sys/bus/pci/drivers/shpchp/unbind`",
				Evidence: []isolation.Evidence{{Path: "/sys/bus/pci/devices/0000:21:00.0/driver", Value: "shpchp"}},
			},
		},
		{
			"a busy mate", node(bridged("", busy)...), "0000:22:01.0", isolation.NotViable,
			isolation.Reason{
				Severity: isolation.High, Text: "0000:22:02.0 (ice) in IOMMU group 2 is used by the node itself: netdev eth0 has address 10.0.0.5/24",
				Fix:      "free it of that use, or move 0000:22:01.0 to a slot whose ports have ACS, or enable ACS (for VFs also ARI) in the firmware setup",
				Evidence: []isolation.Evidence{{Path: "/sys/bus/pci/devices/0000:22:02.0/driver", Value: "ice"}},
			},
		},
		{
			"unsafe interrupts", unsafe, gpuAt, isolation.UnsafeInterrupts,
			isolation.Reason{
				Severity: isolation.Critical, Text: "/sys/module/iommufd/parameters/allow_unsafe_interrupts is on: VFIO gives functions away though nothing keeps them from forging interrupts",
				Fix:      "`echo N > /sys/module/iommufd/parameters/allow_unsafe_interrupts`, and remove allow_unsafe_interrupts from /etc/modprobe.d and the kernel command line",
				Evidence: []isolation.Evidence{{Path: "/sys/module/iommufd/parameters/allow_unsafe_interrupts", Value: "Y"}},
			},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, _ := c.node.Function(addr(t, c.of))
			v := isolation.Judge(c.node, f)
			if !v.Has(c.code) {
				t.Fatalf("no %s among %v", c.code, summary(v.Reasons))
			}
			for _, r := range v.Reasons {
				if r.Code != c.code {
					continue
				}
				r.Code, r.Culprit = "", nil
				if diff := cmp.Diff(c.want, r); diff != "" {
					t.Errorf("reason (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestReasonsAreWorstFirst(t *testing.T) {
	s := host(node(plainGPU(dead, resets())...), chips("PCI-MSI"))
	s = group(s, func(g *device.Group) { g.Reserved = []device.Region{{Type: "direct"}} })
	f, _ := s.Function(addr(t, gpuAt))
	var got []string
	for _, r := range isolation.Judge(s, f).Reasons {
		got = append(got, string(r.Severity)+" "+string(r.Code))
	}
	want := []string{"critical NoInterruptRemapping", "critical NoReset", "high DirectMappedRegion", "high ConfigSpaceDead"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// A verdict that finds nothing wrong must still show what it looked at.
func TestEvidenceOfAGoodVerdict(t *testing.T) {
	s := node(plainGPU()...)
	f, _ := s.Function(addr(t, gpuAt))
	v := isolation.Judge(s, f)
	want := []isolation.Evidence{
		{Path: "/sys/bus/pci/devices/0000:21:00.0/iommu_group", Value: "../../kernel/iommu_groups/2"},
		{Path: "/sys/kernel/irq/*/chip_name", Value: "IR-PCI-MSI IR-PCI-MSIX"},
		{Path: "/sys/bus/pci/devices/0000:20:01.0/config", Value: "ACS capability 0x001d, control 0x001d"},
		{Path: "/sys/kernel/iommu_groups/2/type", Value: "DMA"},
		{Path: "/sys/bus/pci/devices/0000:21:00.0/reset_method", Value: "flr bus"},
	}
	if diff := cmp.Diff(want, v.Evidence); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
}

func TestSeverityCompare(t *testing.T) {
	got := []isolation.Severity{isolation.Low, isolation.Critical, isolation.Medium, isolation.High}
	slices.SortFunc(got, isolation.Severity.Compare)
	want := []isolation.Severity{isolation.Critical, isolation.High, isolation.Medium, isolation.Low}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

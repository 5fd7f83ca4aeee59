package isolation_test

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// A GPU is alone in its IOMMU group and can be reset, but the node does not remap interrupts.
func ExampleJudge() {
	group := 15
	gpu := device.Function{
		Address: pci.Address{Bus: 0x3b}, Class: 0x030200, Type: device.GPU, Group: &group, Driver: "nvidia",
		ResetMethods: []string{"flr"},
		Capabilities: pci.Capabilities{Express: &pci.Express{Type: pci.Endpoint, FLR: true}},
	}
	node := &device.Snapshot{
		Functions: []device.Function{gpu},
		Groups:    []device.Group{{Number: group, Type: "DMA", Members: []pci.Address{gpu.Address}}},
		Host:      device.Host{IOMMUs: []string{"dmar0"}, IRQChips: []string{"PCI-MSIX-0000:3b:00.0"}},
	}
	verdict := isolation.Judge(node, &node.Functions[0])
	fmt.Println("isolated:", verdict.Isolated)
	for _, reason := range verdict.Reasons {
		fmt.Printf("%s (%s): %s\n", reason.Code, reason.Severity, reason.Text)
	}

	node.Host.IRQChips = []string{"IR-PCI-MSIX-0000:3b:00.0"}
	verdict = isolation.Judge(node, &node.Functions[0])
	fmt.Println("isolated:", verdict.Isolated, "and reset by", verdict.Reset.Method)
	// Output:
	// isolated: false
	// NoInterruptRemapping (critical): interrupts are not remapped (chip PCI-MSIX-0000:3b:00.0): 0000:3b:00.0 could forge interrupts of the host and of other VMs
	// isolated: true and reset by flr
}

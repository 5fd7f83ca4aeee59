package plan_test

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// A plan of a claim for one GPU that is bound to its kernel driver.
func ExampleMake() {
	group := 15
	gpu := device.Function{
		Address: pci.Address{Bus: 0x3b}, Class: 0x030200, Type: device.GPU, Group: &group, Driver: "nvidia",
		Modalias: "pci:v000010DEd00002330sv00000000sd00000000bc03sc02i00", ResetMethods: []string{"flr"},
		Capabilities: pci.Capabilities{Express: &pci.Express{Type: pci.Endpoint, FLR: true}},
	}
	snapshot := &device.Snapshot{
		Functions: []device.Function{gpu},
		Groups:    []device.Group{{Number: group, Type: "DMA", Members: []pci.Address{gpu.Address}}},
		Host: device.Host{
			IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSIX-0000:3b:00.0"}, Drivers: []string{"nvidia", "vfio-pci"},
		},
	}
	node := plan.Node{Snapshot: snapshot, Selection: nodeconfig.Select(nil, snapshot)}
	request := &claim.Request{UID: "0f8fad5b", Namespace: "tenant-a", Name: "gpu", Devices: []claim.Device{
		{Request: "gpu", Pool: "node-1/kata-vfio.dev", Name: "gpu-0000-3b-00-0", Address: gpu.Address, VFIO: v1alpha1.VFIOConfig{}},
	}}
	request.Devices[0].VFIO.Default()

	p, err := plan.Make(request, node)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, step := range p.StepsFor(plan.AtOriginal, plan.Preparation()...) {
		fmt.Println(step)
	}

	// A GPU that drives the console is refused.
	snapshot.Functions[0].Uses = []device.Use{{Kind: device.UseConsole, Name: "card0"}}
	node.Selection = nodeconfig.Select(nil, snapshot)
	_, err = plan.Make(request, node)
	fmt.Println(err)
	// Output:
	// unbind 0000:3b:00.0 from nvidia
	// set driver_override of 0000:3b:00.0 to vfio-pci
	// probe 0000:3b:00.0 for vfio-pci
	// kata-vfio refuses claim tenant-a/gpu (0f8fad5b): gpu-0000-3b-00-0: 0000:3b:00.0 (driver nvidia) must not be taken: it drives the boot console; stop that use first, or claim another device (Forbidden)
}

// The inverses of a transition, in reverse order, are the way back.
func ExampleTransition() {
	gpu := pci.Address{Bus: 0x3b}
	host, vfio := plan.Binding{Driver: "nvidia"}, plan.Binding{Driver: "vfio-pci", Override: "vfio-pci"}
	for _, step := range plan.Transition(gpu, host, vfio) {
		fmt.Println(step)
	}
	fmt.Println()
	for _, step := range plan.Transition(gpu, vfio, host) {
		fmt.Println(step)
	}
	// Output:
	// unbind 0000:3b:00.0 from nvidia
	// set driver_override of 0000:3b:00.0 to vfio-pci
	// probe 0000:3b:00.0 for vfio-pci
	//
	// unbind 0000:3b:00.0 from vfio-pci
	// clear driver_override of 0000:3b:00.0
	// probe 0000:3b:00.0 for nvidia
}

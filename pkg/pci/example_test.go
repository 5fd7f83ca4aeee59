package pci_test

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func ExampleParseAddress() {
	gpu, err := pci.ParseAddress("0000:3b:00.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	audio := gpu
	audio.Function = 1
	fmt.Println(audio, "has the label", audio.Label())
	fmt.Println("same slot:", gpu.SameSlot(audio))

	_, err = pci.ParseAddress("3b:00.0") // the short form names one function in each domain
	fmt.Println(err)
	// Output:
	// 0000:3b:00.1 has the label 0000-3b-00-1
	// same slot: true
	// "3b:00.0" is not a PCI address (want domain:bus:device.function, such as 0000:3b:00.0)
}

func ExampleParseModalias() {
	m, ok := pci.ParseModalias("pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00")
	fmt.Println(m.Vendor, m.Device, m.Class, ok)
	// Output: 10de 2330 030200 true
}

func ExampleParseResources() {
	resources, err := pci.ParseResources("0x00000000fb000000 0x00000000fbffffff 0x0000000000040200\n" +
		"0x0000004000000000 0x0000005fffffffff 0x000000000014220c\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, bar := range resources {
		fmt.Printf("BAR %d: %d MiB, prefetchable %t\n", i, bar.Size()>>20, bar.Prefetchable())
	}
	// Output:
	// BAR 0: 16 MiB, prefetchable false
	// BAR 1: 131072 MiB, prefetchable true
}

package fabrictest

import (
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Partition returns a partition of the modules, as Fabric Manager lists it on H100 and later: without addresses.
func Partition(id int, modules ...int) fabric.Partition {
	p := fabric.Partition{ID: id}
	for _, m := range modules {
		p.GPUs = append(p.GPUs, fabric.GPU{Module: m, Links: 18, MaxLinks: 18, LineRate: 26562})
	}
	return p
}

// H100 returns the partitions of an HGX H100 or H200 board, by NVIDIA's guide.
func H100() fabric.List {
	return board(0, [][]int{{1, 3}, {2, 4}, {5, 7}, {6, 8}})
}

// B200 returns the partitions of an HGX B200 or B300 board.
func B200() fabric.List {
	return board(1, [][]int{{1, 2}, {3, 4}, {5, 6}, {7, 8}})
}

// board returns the partitions of a board of eight GPUs, numbered from the largest to the smallest.
func board(first int, pairs [][]int) fabric.List {
	sets := append([][]int{{1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4}, {5, 6, 7, 8}}, pairs...)
	for m := 1; m <= 8; m++ {
		sets = append(sets, []int{m})
	}
	var l fabric.List
	for i, modules := range sets {
		l = append(l, Partition(first+i, modules...))
	}
	return l
}

// Buses returns the bus of each module on NVIDIA's example of an H100 board (WP-12736-002), whose modules are in another order than
// its buses.
func Buses() []uint8 { return []uint8{0x86, 0xb8, 0x87, 0xbb, 0x0f, 0x41, 0x10, 0x44} }

// Map returns the map of a board whose modules are on the buses.
func Map(product string, buses ...uint8) *fabric.Map {
	m := &fabric.Map{Product: product}
	for i, bus := range buses {
		m.Places = append(m.Places, fabric.Place{Module: i + 1, Address: pci.Address{Bus: bus}})
	}
	return m
}

package device

import (
	"cmp"
	"fmt"
)

// CompareNUMA orders NUMA nodes by number, and nil last.
func CompareNUMA[T cmp.Ordered](a, b *T) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*a, *b)
}

// RootLine names a PCI root bus and its NUMA node, if it has one: "pci0000:3b, NUMA 0".
func RootLine[T int | int64](name string, numa *T) string {
	if numa == nil {
		return name
	}
	return fmt.Sprintf("%s, NUMA %d", name, *numa)
}

package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// PartitionType is the type of a [Partition] among the types of functions.
const PartitionType Type = "gpu-partition"

// Partition is a set of at least two GPUs, by address, that an NVLink fabric joins, and that are assigned as one device. The pointers are
// into a snapshot: read, don't write.
type Partition struct {
	GPUs []*Function
}

// partitionPrefix begins the name of a partition, before the number of its GPUs.
const partitionPrefix = string(GPU) + "-x"

// longestName is the limit of a device name, which is a DNS label.
const longestName = 63

// Name returns the partition's device name in ResourceSlices. "gpu-x2-0000-86-87" has the domain and the buses of the
// GPUs. It is used if all GPUs are in one domain and each is the first function of its bus, as on all boards so far.
// Otherwise the name has the addresses: "gpu-x2-0000-86-00-0-0000-87-00-1". The name does not contain Fabric Manager's
// number, so that an allocated device stays the same whatever Fabric Manager lists later. It is empty if the addresses
// are too long for a name.
func (p *Partition) Name() string {
	addrs := make([]pci.Address, len(p.GPUs))
	for i, gpu := range p.GPUs {
		addrs[i] = gpu.Address
	}
	return partitionName(addrs)
}

func partitionName(of []pci.Address) string {
	words := []string{partitionPrefix + strconv.Itoa(len(of))}
	if haveBuses(of) {
		domain, _, _ := strings.Cut(of[0].Label(), "-")
		words = append(words, domain)
		for _, a := range of {
			words = append(words, fmt.Sprintf("%02x", a.Bus))
		}
	} else {
		for _, a := range of {
			words = append(words, a.Label())
		}
	}
	name := strings.Join(words, "-")
	if len(name) > longestName {
		return ""
	}
	return name
}

// haveBuses reports whether the buses are enough to identify the addresses: all addresses are of one domain, and each
// is the first function of its bus.
func haveBuses(of []pci.Address) bool {
	return !slices.ContainsFunc(of, func(a pci.Address) bool {
		return a.Domain != of[0].Domain || a.Device != 0 || a.Function != 0
	})
}

// parsePartition returns the functions in a partition's name, and false if it is another name.
func parsePartition(name string) (parts []Part, is bool, err error) {
	rest, is := strings.CutPrefix(name, partitionPrefix)
	if !is {
		return nil, false, nil
	}
	count, rest, _ := strings.Cut(rest, "-")
	n, err := strconv.Atoi(count)
	fields := strings.Split(rest, "-")
	bad := fmt.Errorf("device name %q: want gpu-x<number>-<domain>-<bus>-<bus> with a bus for each GPU", name)
	if err != nil || n < 2 || len(fields) != n+1 && len(fields) != 4*n {
		return nil, true, bad
	}
	addrs := make([]pci.Address, n)
	for i := range addrs {
		label := strings.Join([]string{fields[0], fields[min(i+1, len(fields)-1)], "00", "0"}, "-")
		if len(fields) == 4*n {
			label = strings.Join(fields[4*i:4*i+4], "-")
		}
		if addrs[i], err = pci.ParseLabel(label); err != nil {
			return nil, true, bad
		}
		parts = append(parts, Part{Name: string(GPU) + "-" + addrs[i].Label(), Type: GPU, Address: addrs[i]})
	}
	// Each set of functions has one name.
	ordered := slices.IsSortedFunc(addrs, pci.Address.Compare) && len(slices.Compact(slices.Clone(addrs))) == n
	if !ordered || partitionName(addrs) != name {
		return nil, true, bad
	}
	return parts, true, nil
}

// FabricFacts are what a node says of an NVLink fabric. Package fabric reads the two files.
type FabricFacts struct {
	// State is what Fabric Manager answered last, and Modules the map that bootstrap captured. Both are the content of
	// their files; empty if there is no such file.
	State, Modules string
	// Unread says why one of the two files could not be read, such as an error of the disk; empty if that did not happen.
	Unread string
	// Product is the machine's name in its firmware (DMI). Driver is the version of NVIDIA's kernel driver, which is that of Fabric
	// Manager. Both are empty if they are unknown, and on a node without the two files.
	Product, Driver string
}

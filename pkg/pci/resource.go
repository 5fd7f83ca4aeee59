package pci

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxBARs is how many base address registers a function can have. The lines
// of sysfs' "resource" after the first six are its ROM, the BARs of its VFs
// and a bridge's windows.
const MaxBARs = 6

// Resource flags (IORESOURCE_* in include/linux/ioport.h).
const (
	resourceIO       = 0x00000100
	resourceMem      = 0x00000200
	resourcePrefetch = 0x00002000
	resourceMem64    = 0x00100000
	resourceUnset    = 0x20000000
)

// Resource is one line of sysfs' "resource" attribute: an address range with
// both ends included, and the kernel's flags.
type Resource struct {
	Start, End, Flags uint64
}

// ParseResources reads the lines of a function's "resource" attribute that
// belong to its BARs; index i is BAR i. A BAR that is not there reads as zero,
// as does the upper half of a 64-bit one.
func ParseResources(text string) ([]Resource, error) { return parseLines(text, 0) }

// firstVFBAR is the line of the first VF BAR (PCI_IOV_RESOURCES in include/linux/pci.h): behind the BARs and the ROM.
const firstVFBAR = MaxBARs + 1

// ParseVFResources reads the memory that a PF has for its VFs, as [ParseResources] does for BARs; index i is VF BAR i.
// Use it only for a PF: other functions may have a bridge's windows in these lines.
func ParseVFResources(text string) ([]Resource, error) { return parseLines(text, firstVFBAR) }

// parseLines reads as many lines as there are BARs, from the given one on.
func parseLines(text string, first int) ([]Resource, error) {
	var resources []Resource
	index := -1
	for line := range strings.Lines(text) {
		if index++; index < first {
			continue
		}
		if len(resources) == MaxBARs {
			break
		}
		r, err := parseResource(line)
		if err != nil {
			return nil, err
		}
		resources = append(resources, r)
	}
	return resources, nil
}

// noResource is the line of a BAR that is not there, as most are (drivers/pci/pci-sysfs.c resource_show).
const noResource = "0x0000000000000000 0x0000000000000000 0x0000000000000000"

func parseResource(line string) (Resource, error) {
	if strings.TrimSpace(line) == noResource {
		return Resource{}, nil
	}
	var values [3]uint64
	fields := strings.Fields(line)
	if len(fields) != len(values) {
		return Resource{}, fmt.Errorf("resource line %q: want start, end and flags", line)
	}
	for i, field := range fields {
		n, err := strconv.ParseUint(field, 0, 64)
		if err != nil {
			return Resource{}, fmt.Errorf("resource line %q: %w", line, err)
		}
		values[i] = n
	}
	return Resource{Start: values[0], End: values[1], Flags: values[2]}, nil
}

// Size returns the length of the range in bytes, 0 for a BAR that is not there.
func (r Resource) Size() uint64 {
	// Both ends are included, so that a missing BAR, which is all zeros, would have one byte.
	if r.End == 0 || r.End < r.Start {
		return 0
	}
	return r.End - r.Start + 1
}

// Unassigned reports whether the BAR exists but has no address, because the kernel found no room for it. The kernel
// enables no function with such a BAR (drivers/pci/setup-res.c pci_enable_resources: "not assigned" for the flag, "not
// claimed" for a BAR that has no place in the memory map). A memory BAR at address 0 counts as unassigned too, because
// the host's own memory is there.
func (r Resource) Unassigned() bool {
	memory := r.Flags&resourceMem != 0
	return r.Flags&resourceUnset != 0 && (memory || r.IO()) || memory && r.Start == 0 && r.End > 0
}

// IO reports whether the range is in I/O port space rather than memory.
func (r Resource) IO() bool { return r.Flags&resourceIO != 0 }

// Prefetchable reports whether reads have no side effects.
func (r Resource) Prefetchable() bool { return r.Flags&resourcePrefetch != 0 }

// Is64 reports whether the BAR takes 64-bit addresses.
func (r Resource) Is64() bool { return r.Flags&resourceMem64 != 0 }

// ROM returns the expansion ROM of a function's "resource" attribute, the line behind
// those of its BARs; false if it has none.
func ROM(text string) (Resource, bool, error) {
	index := 0
	for line := range strings.Lines(text) {
		if index == MaxBARs {
			r, err := parseResource(line)
			return r, r.End > r.Start, err
		}
		index++
	}
	return Resource{}, false, nil
}

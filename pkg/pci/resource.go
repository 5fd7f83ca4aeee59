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
	resourcePrefetch = 0x00002000
	resourceMem64    = 0x00100000
)

// Resource is one line of sysfs' "resource" attribute: an address range with
// both ends included, and the kernel's flags.
type Resource struct {
	Start, End, Flags uint64
}

// ParseResources reads the lines of a function's "resource" attribute that
// belong to its BARs; index i is BAR i. A BAR that is not there reads as zero,
// as does the upper half of a 64-bit one.
func ParseResources(text string) ([]Resource, error) {
	var resources []Resource
	for line := range strings.Lines(text) {
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
	if r.End == 0 || r.End < r.Start {
		return 0
	}
	return r.End - r.Start + 1
}

// IO reports whether the range is in I/O port space rather than memory.
func (r Resource) IO() bool { return r.Flags&resourceIO != 0 }

// Prefetchable reports whether reads have no side effects.
func (r Resource) Prefetchable() bool { return r.Flags&resourcePrefetch != 0 }

// Is64 reports whether the BAR takes 64-bit addresses.
func (r Resource) Is64() bool { return r.Flags&resourceMem64 != 0 }

// ROM returns the expansion ROM of a function's "resource" attribute, the line behind
// those of its BARs; false where it has none.
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

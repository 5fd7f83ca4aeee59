package pci

import "strings"

// Modalias is what a function's drivers are found by. The kernel prints it from
// the same numbers as the attributes of its parts (drivers/pci/pci-sysfs.c
// modalias_show), so that one read gives all of them.
type Modalias struct {
	Vendor, Device, SubVendor, SubDevice ID
	Class                                Class
}

// ParseModalias reads "pci:v00008086d000010C9sv00008086sd0000A03Cbc02sc00i00";
// false for anything else, patterns included.
func ParseModalias(text string) (Modalias, bool) {
	rest, ok := strings.CutPrefix(text, "pci:")
	field := func(key string, digits int, limit uint64) uint64 {
		after, found := strings.CutPrefix(rest, key)
		if !found || len(after) < digits {
			ok = false
			return 0
		}
		n, valid := hex(after[:digits], digits, digits, limit)
		rest, ok = after[digits:], ok && valid
		return n
	}
	id := func(key string) ID { return ID(field(key, 8, 0xffff)) }
	m := Modalias{Vendor: id("v"), Device: id("d"), SubVendor: id("sv"), SubDevice: id("sd")}
	m.Class = Class(field("bc", 2, 0xff)<<16 | field("sc", 2, 0xff)<<8 | field("i", 2, 0xff))
	if !ok || rest != "" {
		return Modalias{}, false
	}
	return m, true
}

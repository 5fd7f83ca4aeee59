package check

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// matchesIDs reports whether a function has one of the ids that vfio-pci is configured with.
func matchesIDs(f *device.Function, ids []facts.Fact) bool {
	return slices.ContainsFunc(ids, func(fact facts.Fact) bool {
		for entry := range strings.SplitSeq(fact.Value, ",") {
			if id, ok := parseID(entry); ok && id.matches(f) {
				return true
			}
		}
		return false
	})
}

// anyID matches every vendor and device (PCI_ANY_ID).
const anyID = 0xffffffff

// moduleID is an entry of vfio-pci's parameter ids. classMask says which bits of class are compared.
type moduleID struct{ vendor, device, subVendor, subDevice, class, classMask uint32 }

// parseID reads "vendor:device[:subvendor[:subdevice[:class[:class_mask]]]]" in hexadecimal, as the module does
// (vfio_pci_fill_ids in drivers/vfio/pci/vfio_pci.c). It ignores entries with fewer than two fields.
func parseID(entry string) (id moduleID, ok bool) {
	id = moduleID{subVendor: anyID, subDevice: anyID}
	fields := []*uint32{&id.vendor, &id.device, &id.subVendor, &id.subDevice, &id.class, &id.classMask}
	read := 0
	for text := range strings.SplitSeq(strings.TrimSpace(entry), ":") {
		if read == len(fields) {
			break
		}
		// The module's sscanf stops at the first unreadable field, and keeps the fields before it.
		n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 32)
		if err != nil {
			break
		}
		*fields[read] = uint32(n)
		read++
	}
	return id, read >= 2
}

// matches is pci_match_one_device.
func (id *moduleID) matches(f *device.Function) bool {
	is := func(want uint32, has uint16) bool { return want == anyID || want == uint32(has) }
	return is(id.vendor, uint16(f.Vendor)) && is(id.device, uint16(f.Device)) &&
		is(id.subVendor, uint16(f.SubVendor)) && is(id.subDevice, uint16(f.SubDevice)) &&
		(id.class^uint32(f.Class))&id.classMask == 0
}

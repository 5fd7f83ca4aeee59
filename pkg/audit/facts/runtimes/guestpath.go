package runtimes

import (
	"fmt"
	"strconv"
	"strings"
)

// rootBus is the root bus of QEMU's machines q35 and virt.
const rootBus = "pcie.0"

// slots are how many devices a bus has room for.
const slots = 32

// layout is where a VMM's command line puts devices on the guest's root bus, by
// slot, as QEMU does: one word after the other, each device without an address in the
// first free slot (hw/pci/pci.c do_pci_register_device). Slot 0 is the host bridge's.
type layout struct {
	taken [slots]bool
	// at has the slots of devices with an id.
	at map[string]int
}

// GuestPath returns the path in the guest of a device on the bus, such as "05/00" on
// "rp0": Kata 4.1.0 asks QEMU for it and doesn't write it down. It is empty where the
// command line does not tell: the bus is no root port, or another VMM runs.
func (v *VMM) GuestPath(bus string) string {
	if !v.IsQEMU() {
		return ""
	}
	slot, ok := v.rootPorts()[bus]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%02x/00", slot)
}

// rootPorts returns the slots of root ports on the root bus.
func (v *VMM) rootPorts() map[string]int {
	l := layout{at: map[string]int{}}
	l.taken[0] = true
	for i, arg := range v.args {
		if arg == "-device" && i+1 < len(v.args) && !l.place(v.args[i+1]) {
			break // what comes after it may be anywhere
		}
	}
	return l.at
}

// place puts one device, and reports whether it is known where.
func (l *layout) place(word string) bool {
	model, options := deviceOptions(word)
	if bus := options["bus"]; !isPCI(model) || bus != "" && bus != rootBus {
		return true
	}
	slot, ok := l.slot(options["addr"])
	if !ok {
		return false
	}
	l.taken[slot] = true
	if model == "pcie-root-port" && options["id"] != "" {
		l.at[options["id"]] = slot
	}
	return true
}

// slot returns that of an address, "2" or "0x5.0x1", or the first free one.
func (l *layout) slot(addr string) (int, bool) {
	if addr != "" {
		text, _, _ := strings.Cut(addr, ".")
		// QEMU reads the slot as hexadecimal, with or without 0x.
		n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 8)
		return int(n), err == nil && n < slots
	}
	for i, taken := range l.taken {
		if !taken {
			return i, true
		}
	}
	return 0, false
}

// deviceOptions splits what follows -device: "vfio-pci,host=...", or with "driver=" before
// the model.
func deviceOptions(word string) (model string, options map[string]string) {
	options = map[string]string{}
	for i, option := range strings.Split(word, ",") {
		name, value, has := strings.Cut(option, "=")
		if i == 0 && !has {
			name, value = "driver", option
		}
		options[name] = value
	}
	return options["driver"], options
}

// isPCI reports whether a model of QEMU's is a PCI device, by its name: those that Kata
// uses.
func isPCI(model string) bool {
	return strings.HasSuffix(model, "-pci") || strings.HasSuffix(model, "-bridge") || model == "pcie-root-port" ||
		model == "x3130-upstream" || strings.HasSuffix(model, "-pci-non-transitional") || strings.HasSuffix(model, "-pci-transitional")
}

package hosts_test

import (
	"fmt"
	"strconv"
	"strings"
)

// A function is a line of a node's functions: address, vendor:device, class, driver, and words "key=value" or "key". The class is six hexadecimal
// digits or a word of classes, and the driver "-" for none. The words are:
//
//	group=N      its IOMMU group
//	reset=A,B    its reset methods, flr and bus if the word is missing; "reset" for none
//	acs=HEX      a port's or function's ACS control register; without the word it has no ACS
//	ats          it has ATS, switched on
//	boot=N       boot_vga
//	override=D   driver_override
//	net=NAME     its network interface
//	vfs=N        it is a PF with so many VFs at most
//	vf=N@PF      it is VF N of the PF
//	sub=V:D      the IDs of its subsystem
//	numa=N       its NUMA node, 0 if the word is missing
//	iommu=NAME   its IOMMU
//	config=N     so many bytes of its configuration space can be read
//	dead         its configuration space reads all ones
//	under=PATH   the directory of its root bus
type function struct {
	address       string
	vendor, model uint16
	class         uint32
	kind          portKind
	driver        string
	words         map[string]string
	dir           string // of sysfs
	multi         bool   // there are others with its device number
}

// A portKind is the type in a function's PCI Express capability.
type portKind uint16

const (
	endpoint   portKind = 0
	rootPort   portKind = 4
	upstream   portKind = 5
	downstream portKind = 6
	integrated portKind = 9
)

const bridgeClass = 0x060400

func classes() map[string]uint32 {
	return map[string]uint32{
		"vga": 0x030000, "3d": 0x030200, "accelerator": 0x120000, "audio": 0x040300, "nic": 0x020000, "wifi": 0x028000, "nvme": 0x010802, "sata": 0x010601, "raid": 0x010400,
		"usb": 0x0c0330, "ucsi": 0x0c8000, "encryption": 0x108000, "sound": 0x048000, "memory": 0x058000, "nvswitch": 0x068000, "host": 0x060000, "qat": 0x0b4000,
	}
}

func ports() map[string]portKind {
	return map[string]portKind{"root-port": rootPort, "upstream": upstream, "downstream": downstream}
}

// parseFunctions parses the lines, each after those that it is behind.
func parseFunctions(text string) ([]*function, error) {
	var all, above []*function
	for line := range strings.Lines(text) {
		trimmed := strings.TrimLeft(line, " ")
		depth := (len(line) - len(trimmed)) / 2
		if strings.TrimSpace(trimmed) == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		f, err := parseFunction(trimmed)
		if err != nil || depth > len(above) {
			return nil, fmt.Errorf("function %q: %w", trimmed, err)
		}
		above = append(above[:depth], f)
		f.place(above)
		all = append(all, f)
	}
	for _, f := range all {
		for _, g := range all {
			f.multi = f.multi || f != g && f.slot() == g.slot() && !f.has("vf") && !g.has("vf")
		}
	}
	return all, nil
}

// place finds the function's directory: below the last of those above, whose domain has a bus of its own behind a device such as VMD.
func (f *function) place(above []*function) {
	domainBus := f.address[:strings.LastIndex(f.address, ":")]
	switch {
	case f.has("under"):
		f.dir = f.words["under"]
	case len(above) == 1:
		f.dir = "/sys/devices/pci" + domainBus
	default:
		parent := above[len(above)-2]
		f.dir = parent.dir
		if domain, _, _ := strings.Cut(domainBus, ":"); !strings.HasPrefix(parent.address, domain+":") {
			f.dir += "/pci" + domainBus
		}
	}
	f.dir += "/" + f.address
}

func parseFunction(line string) (*function, error) {
	words := strings.Fields(line)
	if len(words) < 4 {
		return nil, fmt.Errorf("want address, ID, class and driver")
	}
	f := &function{address: words[0], driver: words[3], words: map[string]string{}}
	if _, err := fmt.Sscanf(words[1], "%04x:%04x", &f.vendor, &f.model); err != nil {
		return nil, err
	}
	for _, word := range words[4:] {
		key, value, _ := strings.Cut(word, "=")
		f.words[key] = value
	}
	if kind, ok := ports()[words[2]]; ok {
		f.kind, f.class = kind, bridgeClass
		return f, nil
	}
	name, root := strings.CutPrefix(words[2], "integrated-")
	if root {
		f.kind = integrated
	}
	class, ok := classes()[name]
	if !ok {
		n, err := strconv.ParseUint(name, 16, 24)
		if err != nil {
			return nil, err
		}
		class = uint32(n)
	}
	f.class = class
	return f, nil
}

func (f *function) has(word string) bool { _, ok := f.words[word]; return ok }
func (f *function) slot() string         { return f.address[:strings.LastIndex(f.address, ".")] }
func (f *function) bridge() bool         { return f.class>>8 == bridgeClass>>8 }

// or returns a word's value, or what stands for it.
func (f *function) or(word, otherwise string) string {
	if value, ok := f.words[word]; ok {
		return value
	}
	return otherwise
}

// resets are the function's reset methods as sysfs has them.
func (f *function) resets() string {
	if f.bridge() {
		return ""
	}
	return strings.ReplaceAll(f.or("reset", "flr,bus"), ",", " ")
}

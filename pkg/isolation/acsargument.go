package isolation

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ACSChange is a part of the kernel's argument pci= that switches ACS controls off.
type ACSChange struct {
	// Functions are the functions, in the kernel's words: "0000:3a:01.0", "pci:10b5:8747".
	Functions string
	// Off are the controls, of those in [requiredACS].
	Off uint16
	// redirection is set for the option disable_acs_redir, which names no controls.
	redirection bool
}

// Text describes the change: "switches redirection off for 0000:3a:01.0".
func (c *ACSChange) Text() string {
	if c.redirection {
		return "switches redirection off for " + c.Functions
	}
	return fmt.Sprintf("switches %s off for %s", ACSNames(c.Off), c.Functions)
}

// WeakensACS describes the fault in a value of the kernel's argument pci=, whose options are separated by commas. It
// returns "" if there is none.
func WeakensACS(value string) string {
	var texts []string
	for _, c := range ACSChanges(value) {
		texts = append(texts, c.Text())
	}
	return strings.Join(texts, " and ")
}

// ACSChanges returns the changes by which a value of the kernel's argument pci= switches controls off.
func ACSChanges(value string) []ACSChange {
	var all []ACSChange
	for option := range strings.SplitSeq(value, ",") {
		name, list, _ := strings.Cut(option, "=")
		switch name {
		case "disable_acs_redir":
			all = append(all, ACSChange{Functions: list, Off: pci.ACSRequestRedirect | pci.ACSCompletionRedirect, redirection: true})
		case "config_acs":
			all = append(all, configACS(list)...)
		}
	}
	return all
}

// configACS returns the changes by which a list of "<bits>@<functions>;..." switches controls off. Bits are written
// from right to left, source validation last: 0 disables, 1 enables, x leaves unchanged.
func configACS(list string) []ACSChange {
	var all []ACSChange
	var off uint16
	for entry := range strings.SplitSeq(list, ";") {
		bits, functions, ok := strings.Cut(entry, "@")
		if !ok { // the entry names more functions of the previous entry
			if last := len(all) - 1; off != 0 && last >= 0 {
				all[last].Functions += ";" + entry
			}
			continue
		}
		if off = disabled(bits) & requiredACS; off != 0 {
			all = append(all, ACSChange{Functions: functions, Off: off})
		}
	}
	return all
}

// disabled returns the controls whose bits are 0.
func disabled(bits string) uint16 {
	var off uint16
	for i := range min(len(bits), 16) {
		if bits[len(bits)-1-i] == '0' {
			off |= 1 << i
		}
	}
	return off
}

// Concerns reports whether the change names a function of the snapshot, as the kernel matches it (pci_dev_str_match in
// drivers/pci/pci.c). A text that can't be parsed counts as naming every function.
func (c *ACSChange) Concerns(s *device.Snapshot, f *device.Function) bool {
	for named := range strings.SplitSeq(c.Functions, ";") {
		if named == "" {
			continue
		}
		if matches, ok := matchesFunction(named, s, f); matches || !ok {
			return true
		}
	}
	return false
}

// matchesFunction matches "pci:<vendor>:<device>[:<subvendor>:<subdevice>]" or a path,
// "[<domain>:]<bus>:<device>.<function>[/<device>.<function>]*"; ok is false for anything else.
func matchesFunction(named string, s *device.Snapshot, f *device.Function) (matches, ok bool) {
	if ids, found := strings.CutPrefix(named, "pci:"); found {
		return matchesIDs(strings.Split(ids, ":"), f)
	}
	path := strings.Split(named, "/")
	at, ok := looseAddress(path[0])
	for _, step := range path[1:] {
		_, valid := looseAddress("0:" + step)
		ok = ok && valid
	}
	if !ok {
		return false, false
	}
	for i := len(path) - 1; i > 0; i-- {
		step, _ := looseAddress("0:" + path[i])
		if f.Address.Device != step.Device || f.Address.Function != step.Function {
			return false, true
		}
		if f, ok = portAbove(s, f); !ok {
			return false, true
		}
	}
	return f.Address == at, true
}

// looseAddress reads an address as the kernel's sscanf does: "0000:3a:01.0", "3a:1.0".
func looseAddress(text string) (pci.Address, bool) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == '.' })
	if len(fields) == 3 {
		fields = append([]string{"0"}, fields...)
	}
	if len(fields) != 4 || !strings.Contains(text, ".") {
		return pci.Address{}, false
	}
	var numbers [4]uint64
	for i, bits := range []int{32, 8, 5, 3} {
		n, err := strconv.ParseUint(fields[i], 16, bits)
		if err != nil {
			return pci.Address{}, false
		}
		numbers[i] = n
	}
	return pci.Address{Domain: uint32(numbers[0]), Bus: uint8(numbers[1]), Device: uint8(numbers[2]), Function: uint8(numbers[3])}, true
}

// portAbove returns the port right above a function.
func portAbove(s *device.Snapshot, f *device.Function) (*device.Function, bool) {
	if len(f.Upstream) == 0 {
		return nil, false
	}
	return s.Function(f.Upstream[len(f.Upstream)-1])
}

// matchesIDs compares IDs with those of f. An ID of 0 matches any.
func matchesIDs(ids []string, f *device.Function) (matches, ok bool) {
	if len(ids) != 2 && len(ids) != 4 {
		return false, false
	}
	own := []pci.ID{f.Vendor, f.Device, f.SubVendor, f.SubDevice}
	for i, text := range ids {
		id, err := strconv.ParseUint(text, 16, 16)
		if err != nil {
			return false, false
		}
		if id != 0 && pci.ID(id) != own[i] {
			return false, true
		}
	}
	return true, true
}

package isolation

import (
	"fmt"
	"strings"
)

// WeakensACS says what is wrong with a value of the kernel's argument pci=, whose options have commas
// between; empty where nothing is.
func WeakensACS(value string) string {
	for option := range strings.SplitSeq(value, ",") {
		name, ports, _ := strings.Cut(option, "=")
		switch name {
		case "disable_acs_redir":
			return "switches redirection off for " + ports
		case "config_acs":
			if why := configACS(ports); why != "" {
				return why
			}
		}
	}
	return ""
}

// configACS says what is wrong with a list of "<bits>@<ports>;...". The bits are
// written from right to left, source validation last: 0 is off, 1 on, x as it is.
func configACS(list string) string {
	for entry := range strings.SplitSeq(list, ";") {
		bits, ports, ok := strings.Cut(entry, "@")
		if !ok {
			continue // more ports of the entry before
		}
		var off uint16
		for i := range min(len(bits), 16) {
			if bits[len(bits)-1-i] == '0' {
				off |= 1 << i
			}
		}
		if off&RequiredACS != 0 {
			return fmt.Sprintf("switches %s off for %s", ACSNames(off&RequiredACS), ports)
		}
	}
	return ""
}

package pci

import (
	"strconv"
	"strings"
)

// ParseFatalErrors returns the total of a function's aer_dev_fatal: how many fatal
// errors the kernel counted since it found the function
// (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats); false where there is none.
func ParseFatalErrors(text string) (total uint64, ok bool) {
	for line := range strings.Lines(text) {
		count, found := strings.CutPrefix(strings.TrimSpace(line), "TOTAL_ERR_FATAL ")
		if total, err := strconv.ParseUint(count, 10, 64); found && err == nil {
			return total, true
		}
	}
	return 0, false
}

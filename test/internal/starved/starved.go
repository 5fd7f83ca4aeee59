// Package starved tells whether this host had no processors left for a test whose machines are emulated: such a machine
// exceeds the time limits of what it runs, and the failure looks like a defect.
package starved

import (
	"fmt"
	"os"
	"strings"
)

const (
	pressure = "/proc/pressure/cpu"
	// most is the percentage of the last five minutes in which something waited for a processor. An emulated machine alone on a host of two
	// processors stays below it; with a compilation beside it does not.
	most = 75
)

// Host describes the shortage of processors on this host. It is empty if the host had processors left, or if the kernel does
// not know.
func Host() string {
	text, err := os.ReadFile(pressure)
	if err != nil {
		return ""
	}
	return judge(string(text))
}

// judge reads the kernel's text: "some avg10=1.00 avg60=1.00 avg300=1.00 total=1" and more.
func judge(text string) string {
	for line := range strings.Lines(text) {
		var share [3]float64
		if n, err := fmt.Sscanf(line, "some avg10=%g avg60=%g avg300=%g", &share[0], &share[1], &share[2]); err == nil && n == 3 && share[2] >= most {
			return fmt.Sprintf("this host has too few processors for what it runs: in %.0f %% of the last five minutes something waited for one (%s). "+
				"An emulated machine then exceeds time limits. Run it again with nothing else beside it", share[2], pressure)
		}
	}
	return ""
}

package facts

import (
	"fmt"
	"strconv"
	"strings"
)

// capIPCLock is CAP_IPC_LOCK's number (include/uapi/linux/capability.h).
const capIPCLock = 14

// LocksAtWill returns whether a process may lock, and so pin for DMA, as much memory
// as it likes: it has CAP_IPC_LOCK, or no limit of locked memory. It is unknown where
// neither fact is OK.
func (n *Node) LocksAtWill(pid int) (free, known bool, seen []Fact) {
	status := n.Read(fmt.Sprintf("proc/%d/status", pid))
	limits := n.Read(fmt.Sprintf("proc/%d/limits", pid))
	caps, soft := statusField(status.Value, "CapEff:"), lockedLimit(limits.Value)
	status.Value, limits.Value = "CapEff: "+caps, "Max locked memory: "+soft
	seen = []Fact{status, limits}
	bits, err := strconv.ParseUint(caps, 16, 64)
	switch {
	case err == nil && bits&(1<<capIPCLock) != 0, soft == "unlimited":
		return true, true, seen
	case err != nil || soft == "":
		return false, false, seen
	}
	return false, true, seen
}

// statusField returns a field of proc/<pid>/status.
func statusField(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// lockedLimit returns the soft limit of locked memory of proc/<pid>/limits.
func lockedLimit(text string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				return fields[0]
			}
		}
	}
	return ""
}

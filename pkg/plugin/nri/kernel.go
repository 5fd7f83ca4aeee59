package nri

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Kernel asks a node's proc and sys. It may be used from several goroutines.
type Kernel struct{ FS *sysfs.FS }

// Majors reads proc/devices, each time: the numbers are given out as the
// modules are loaded.
func (k Kernel) Majors() ([]int64, error) {
	text, err := k.FS.ReadString("proc/devices")
	if err != nil {
		return nil, fmt.Errorf("find VFIO's device numbers: %w", err)
	}
	var majors []int64
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		// The names are those of drivers/vfio/group.c and device_cdev.c.
		if len(f) != 2 || f[1] != "vfio" && f[1] != "vfio-dev" {
			continue
		}
		major, err := strconv.ParseInt(f[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("find VFIO's device numbers: proc/devices: %q: %w", line, err)
		}
		majors = append(majors, major)
	}
	return majors, nil
}

// Number reads the number of a VFIO node from its class in sysfs.
func (k Kernel) Number(node string) (major, minor int64, err error) {
	attribute := "sys/class/" + classOf(node) + "/" + path.Base(node) + "/dev"
	text, err := k.FS.ReadString(attribute)
	if err != nil {
		return 0, 0, fmt.Errorf("device number of %s: %w", node, err)
	}
	if _, err := fmt.Sscanf(text, "%d:%d", &major, &minor); err != nil {
		return 0, 0, fmt.Errorf("device number of %s: %s: %q is not major:minor", node, attribute, text)
	}
	return major, minor, nil
}

// classOf returns the class that a VFIO node's device is in.
func classOf(node string) string {
	switch {
	case isControl(node):
		return "misc"
	case path.Dir(node) == "/dev/vfio/devices":
		return "vfio-dev"
	}
	return "vfio"
}

// StartTime reads proc/<pid>/stat.
func (k Kernel) StartTime(pid int) (uint64, error) {
	stat, err := k.FS.ReadString("proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	start, err := sysfs.ParseStartTime(stat)
	if err != nil {
		return 0, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	return start, nil
}

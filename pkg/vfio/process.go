package vfio

import (
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// describe returns what there is to say about a process.
func describe(fs *sysfs.FS, pid int) (Holder, error) {
	dir := "proc/" + strconv.Itoa(pid)
	comm, err := fs.ReadString(dir + "/comm")
	if err != nil {
		return Holder{}, err
	}
	stat, err := fs.ReadString(dir + "/stat")
	if err != nil {
		return Holder{}, err
	}
	start, err := sysfs.ParseStartTime(stat)
	if err != nil {
		return Holder{}, err
	}
	cgroup, err := fs.ReadString(dir + "/cgroup")
	if err != nil {
		return Holder{}, err
	}
	return Holder{PID: pid, Comm: comm, Container: parseContainer(cgroup), StartTime: start}, nil
}

// parseContainer returns the id of the container that a process is in by the
// text of proc/<pid>/cgroup, empty for none: the last path element with a
// container's id, as the runtimes name their groups:
//
//	0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-<id>.scope
//	0::/system.slice/docker-<id>.scope
//	0::/kubepods/besteffort/pod1/<id>
func parseContainer(cgroup string) string {
	found := ""
	for line := range strings.Lines(cgroup) {
		_, rest, _ := strings.Cut(line, ":")
		_, group, _ := strings.Cut(rest, ":")
		for element := range strings.SplitSeq(strings.TrimSpace(group), "/") {
			if id, ok := containerID(element); ok {
				found = id
			}
		}
		if found != "" {
			break // the hierarchies of cgroup v1 all say the same
		}
	}
	return found
}

// containerID returns the id in one element: 64 hexadecimal digits, after the
// runtime's name and a dash and before ".scope" with systemd.
func containerID(element string) (string, bool) {
	const length = 64
	element = strings.TrimSuffix(element, ".scope")
	if i := strings.LastIndexAny(element, "-:"); i >= 0 {
		element = element[i+1:]
	}
	if len(element) != length || strings.Trim(element, "0123456789abcdef") != "" {
		return "", false
	}
	return element, true
}

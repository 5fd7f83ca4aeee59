package nri

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// containerDevices is everything that can give a container a device, whoever added it to the spec.
type containerDevices struct {
	devices     []*api.LinuxDevice
	access      []*api.LinuxDeviceCgroup // device cgroup rules
	mounts      []*api.Mount
	cdi         []string
	annotations []map[string]string
}

// devicesFor returns what the container gets from its spec and from adjust, the pending adjustments of
// all plugins, which may be nil. It ignores removals in adjust, because the runtime does not remove a
// device of CDI.
func devicesFor(c *api.Container, adjust *api.ContainerAdjustment) *containerDevices {
	g := &containerDevices{
		devices:     slices.Concat(c.GetLinux().GetDevices(), additions(adjust.GetLinux().GetDevices())),
		access:      slices.Concat(c.GetLinux().GetResources().GetDevices(), adjust.GetLinux().GetResources().GetDevices()),
		mounts:      slices.Concat(c.GetMounts(), adjust.GetMounts()),
		annotations: []map[string]string{c.GetAnnotations(), adjust.GetAnnotations()},
	}
	for _, d := range slices.Concat(c.GetCDIDevices(), adjust.GetCDIDevices()) {
		g.cdi = append(g.cdi, d.GetName())
	}
	return g
}

// additions returns an adjustment's devices without the marks for removal.
func additions(devices []*api.LinuxDevice) []*api.LinuxDevice {
	return slices.DeleteFunc(slices.Clone(devices), func(d *api.LinuxDevice) bool {
		_, removal := api.IsMarkedForRemoval(d.GetPath())
		return removal
	})
}

// ourCDI returns the CDI names of our kind.
func (g *containerDevices) ourCDI() []string {
	return slices.DeleteFunc(slices.Clone(g.cdi), func(name string) bool {
		return !strings.HasPrefix(name, cdi.Kind+"=")
	})
}

// node is a VFIO node that a container gets: a device of its spec, or a rule of its device cgroup,
// with which it can open a node that it created itself.
type node struct {
	path         string // cleaned; empty for a rule
	char         bool
	major, minor int64 // minor is anyMinor for a rule that allows all of a major
}

// anyMinor stands for every minor number.
const anyMinor = -1

// String names the node for a message.
func (n node) String() string {
	if n.path != "" {
		return n.path
	}
	return "a device cgroup rule"
}

// vfioNodes returns the VFIO nodes that the container gets, found by path or by device number. The
// majors are VFIO's.
func (g *containerDevices) vfioNodes(majors []int64) []node {
	var nodes []node
	for _, d := range g.devices {
		n := node{path: path.Clean("/" + d.GetPath()), char: isChar(d.GetType()), major: d.GetMajor(), minor: d.GetMinor()}
		if cdi.IsVFIO(d.GetPath()) || cdi.IsVFIO(n.path) || n.char && isVFIONumber(majors, n.major, n.minor) {
			nodes = append(nodes, n)
		}
	}
	// A cgroup rule gives access to a number without a node: with CAP_MKNOD, the container makes the node itself.
	for _, rule := range g.access {
		if n, ok := ruleNode(rule); ok && isVFIONumber(majors, n.major, n.minor) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// ruleNode returns what a device cgroup rule allows. It ignores rules for all majors: each container
// has one for mknod(2), and the one of a privileged container comes with nodes or mounts that are
// refused.
func ruleNode(rule *api.LinuxDeviceCgroup) (node, bool) {
	major := rule.GetMajor().Get()
	if !rule.GetAllow() || major == nil || *major < 0 || !isChar(rule.GetType()) && rule.GetType() != "a" {
		return node{}, false
	}
	n := node{char: true, major: *major, minor: anyMinor}
	if minor := rule.GetMinor().Get(); minor != nil && *minor >= 0 {
		n.minor = *minor
	}
	return n, true
}

// hasNodes reports whether the container gets a character device.
func (g *containerDevices) hasNodes() bool {
	return slices.ContainsFunc(g.devices, func(d *api.LinuxDevice) bool { return isChar(d.GetType()) })
}

// isChar reports whether a type is a character device's. An empty type counts as one.
func isChar(kind string) bool { return kind == "c" || kind == "u" || kind == "" }

const (
	// controlNode opens VFIO's container for legacy groups, iommuNode opens iommufd.
	controlNode = "/dev/vfio/vfio"
	iommuNode   = "/dev/iommu"
	// The control node's fixed number (MISC_MAJOR and VFIO_MINOR in the kernel's
	// include/uapi/linux/major.h and include/linux/miscdevice.h).
	miscMajor    = 10
	controlMinor = 196
)

func isControl(file string) bool { return file == controlNode || file == iommuNode }

func isVFIONumber(majors []int64, major, minor int64) bool {
	return slices.Contains(majors, major) || major == miscMajor && minor == controlMinor
}

// Kernel reads a node's proc and sys, and looks at its files. It is safe for concurrent use.
type Kernel struct {
	FS *sysfs.FS
	// Files finds the sources of mounts; see [NewFinder].
	Files *SourceFinder
}

// sourcesLimit bounds the look at the sources of all mounts of a container. The runtime waits for two seconds, for this
// plugin and with all pods of the node.
const sourcesLimit = 500 * time.Millisecond

// NewFinder returns a finder for a [Kernel] of the node with the root, "/" on a live node.
func NewFinder(root string) *SourceFinder {
	return NewSourceFinder(path.Join(root, initRoot), sourcesLimit)
}

// Devices asks the kernel what the paths lead to from the root of the node's first process.
func (k Kernel) Devices(namespace string, paths []string) (map[string]DeviceNode, error) {
	return k.Files.Devices(namespace, paths)
}

// Majors reads proc/devices each time, because the numbers are allocated when the modules are loaded.
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
	attribute := "sys/class/" + nodeClass(node) + "/" + path.Base(node) + "/dev"
	text, err := k.FS.ReadString(attribute)
	if err != nil {
		return 0, 0, fmt.Errorf("device number of %s: %w", node, err)
	}
	if _, err := fmt.Sscanf(text, "%d:%d", &major, &minor); err != nil {
		return 0, 0, fmt.Errorf("device number of %s: %s: %q is not major:minor", node, attribute, text)
	}
	return major, minor, nil
}

// nodeClass returns the class that a VFIO node's device is in.
func nodeClass(node string) string {
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

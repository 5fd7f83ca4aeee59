package nri

import (
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podpolicy"
)

// given is what a container gets that may carry a VFIO device, whoever put it
// into its spec.
type containerDevices struct {
	name        string
	devices     []*api.LinuxDevice
	access      []*api.LinuxDeviceCgroup // device cgroup rules
	mounts      []*api.Mount
	cdi         []string
	annotations []map[string]string
}

// devicesFor returns what the container gets by its own spec and by adjust, the
// pending adjustments of all plugins; nil for none. Removals in adjust don't
// count: the runtime does not remove a device that CDI has put in.
func devicesFor(c *api.Container, adjust *api.ContainerAdjustment) *containerDevices {
	g := &containerDevices{
		name:        c.GetName(),
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

// additions returns the devices of an adjustment that are not marks of removal.
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

// node is a VFIO node that a container gets: a device of its spec, or a rule of
// its device cgroup by which it could open one that it made itself.
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

// vfioNodes returns the VFIO nodes among what a container gets: by their path,
// and by their number whatever their path. majors are those of VFIO.
func (g *containerDevices) vfioNodes(majors []int64) []node {
	var nodes []node
	for _, d := range g.devices {
		n := node{path: path.Clean("/" + d.GetPath()), char: isChar(d.GetType()), major: d.GetMajor(), minor: d.GetMinor()}
		if podpolicy.IsVFIO(d.GetPath()) || podpolicy.IsVFIO(n.path) || n.char && isVFIONumber(majors, n.major, n.minor) {
			nodes = append(nodes, n)
		}
	}
	for _, rule := range g.access {
		if n, ok := ruleNode(rule); ok && isVFIONumber(majors, n.major, n.minor) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// ruleNode returns what a device cgroup rule allows, unless it allows every
// major: that is what a privileged container has, which has nodes or mounts to
// be refused for, and the mere right to mknod(2) of every container.
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

// hasNodes reports whether the container gets any character device, or may open
// one by its number.
func (g *containerDevices) hasNodes() bool {
	return slices.ContainsFunc(g.devices, func(d *api.LinuxDevice) bool { return isChar(d.GetType()) })
}

// isChar reports whether a device of the type is a character device. No type is
// taken for one.
func isChar(kind string) bool { return kind == "c" || kind == "u" || kind == "" }

const (
	// controlNode opens the container of legacy groups, iommuNode iommufd.
	controlNode = "/dev/vfio/vfio"
	iommuNode   = "/dev/iommu"
	// The control node's fixed number (MISC_MAJOR and VFIO_MINOR in the kernel's
	// include/uapi/linux/major.h and include/linux/miscdevice.h).
	miscMajor    = 10
	controlMinor = 196
)

func isControl(path string) bool { return path == controlNode || path == iommuNode }

func isVFIONumber(majors []int64, major, minor int64) bool {
	return slices.Contains(majors, major) || major == miscMajor && minor == controlMinor
}

// exposed returns what of the host's VFIO nodes a mount shows; nil for nothing.
func exposed(m *api.Mount) *podpolicy.Refusal {
	switch source := m.GetSource(); {
	case strings.EqualFold(m.GetType(), "devtmpfs"):
		return podpolicy.HostPath("/dev")
	case !strings.HasPrefix(source, "/"):
		return nil // a file system without a path: proc, tmpfs
	default:
		return podpolicy.HostPath(source)
	}
}

package facts

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Container is a container and its access to the node. Its environment variables are not kept, because they can contain secrets.
type Container struct {
	ID string `json:"id"`
	// Space is containerd's own namespace: "k8s.io" for pods, "moby" for Docker's.
	Space string `json:"space,omitempty"`
	// Runtime is the shim's type, such as "io.containerd.runc.v2". It is empty if only a bundle is known.
	Runtime string `json:"runtime,omitempty"`
	// PID is the container's first process on the node.
	PID int `json:"pid,omitempty"`
	// Sandbox is the ID of the pod's sandbox. A sandbox has its own ID.
	Sandbox string `json:"sandbox,omitempty"`
	// Namespace and Pod are the pod's names, or empty without a pod.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Mounts are the mounted files and directories of the node.
	Mounts []string `json:"mounts,omitempty"`
	// Devices are the device nodes, by their paths in the container. They are the same on the node, unless the
	// specification sets other paths: the numbers below decide which devices they are.
	Devices []string `json:"devices,omitempty"`
	// BlockDevices are the device numbers of the block devices among Devices, such as raw block volumes: "253:7".
	BlockDevices []string `json:"blockDevices,omitempty"`
	// CharDevices are the device numbers of the character devices among Devices, by their paths there: "511:3". Copies of older
	// versions have none.
	CharDevices map[string]string `json:"charDevices,omitempty"`
	// Privileged: the container has all devices of the node and CAP_SYS_ADMIN.
	Privileged bool `json:"privileged,omitempty"`
	// InitData is Kata's initial data for a confidential guest, from the sandbox's annotation.
	InitData string `json:"-"`
}

// The annotations in which CRI names a container's pod (containerd internal/cri/annotations).
const (
	sandboxID        = "io.kubernetes.cri.sandbox-id"
	sandboxNamespace = "io.kubernetes.cri.sandbox-namespace"
	sandboxName      = "io.kubernetes.cri.sandbox-name"
	initData         = "io.katacontainers.config.hypervisor.cc_init_data"
)

// DescribeContainer parses a container's OCI specification: a bundle's config.json, or containerd's copy. The caller sets ID and
// PID.
func DescribeContainer(spec []byte) (Container, error) {
	var s specs.Spec
	if err := json.Unmarshal(spec, &s); err != nil {
		return Container{}, fmt.Errorf("parse an OCI specification: %w", err)
	}
	c := Container{
		Sandbox: s.Annotations[sandboxID], Namespace: s.Annotations[sandboxNamespace], Pod: s.Annotations[sandboxName],
		InitData: s.Annotations[initData], Privileged: privileged(&s),
	}
	for _, m := range s.Mounts {
		if path.IsAbs(m.Source) {
			c.Mounts = append(c.Mounts, path.Clean(m.Source))
		}
	}
	if s.Linux != nil {
		c.addDevices(s.Linux.Devices)
	}
	return c, nil
}

func (c *Container) addDevices(devices []specs.LinuxDevice) {
	numbers := map[string]string{}
	for _, d := range devices {
		at, number := path.Clean(d.Path), fmt.Sprintf("%d:%d", d.Major, d.Minor)
		c.Devices = append(c.Devices, at)
		switch d.Type {
		case "b":
			c.BlockDevices = append(c.BlockDevices, number)
		case "c", "u": // "u" is an unbuffered character device
			numbers[at] = number
		}
	}
	if len(numbers) > 0 {
		c.CharDevices = numbers
	}
}

// VFIONode returns the node's own name for a device of a container: that of the VFIO node with its device number, or else its path
// in the container.
func (n *Node) VFIONode(c *Container, device string) string {
	if number, ok := c.CharDevices[device]; ok {
		if node, ok := n.nodeNumbers()[number]; ok {
			return node
		}
	}
	return device
}

// privileged reports whether a container has what `privileged: true` of a pod gives it: all capabilities and all
// devices.
func privileged(s *specs.Spec) bool {
	if s.Process == nil || s.Process.Capabilities == nil || s.Linux == nil || s.Linux.Resources == nil {
		return false
	}
	every := func(d specs.LinuxDeviceCgroup) bool {
		return d.Allow && (d.Type == "" || d.Type == "a") && d.Major == nil && d.Minor == nil && strings.Contains(d.Access, "w")
	}
	return slices.Contains(s.Process.Capabilities.Bounding, "CAP_SYS_ADMIN") && slices.ContainsFunc(s.Linux.Resources.Devices, every)
}

package nri

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/assignment"
)

// envPrefix begins the variables that Kata's agent rewrites from the host's PCI
// addresses to the guest's ("PCIDEVICE_*"), as the SR-IOV device plugin named
// them first.
const envPrefix = "PCIDEVICE_KATA_VFIO_DEV_"

// environment returns what tells the container the addresses of its devices, a
// variable for each request: "PCIDEVICE_KATA_VFIO_DEV_GPU=0000:3b:00.0". What
// the container has already stays: it may be its own, or that of another
// instance of this plugin in a rolling update, since NRI shows each plugin the
// container as the ones before it have adjusted it, and fails the container if
// two set one variable. The metadata file of DRA needs nothing from us: it
// comes by a CDI device of the kubelet plugin's.
func environment(used []*assignment.Assignment, c *api.Container) *api.ContainerAdjustment {
	keys, addresses := addressesByKey(used, givenTo(c, nil))
	var adjust *api.ContainerAdjustment
	for _, key := range keys {
		if slices.ContainsFunc(c.GetEnv(), func(e string) bool { return strings.HasPrefix(e, key+"=") }) {
			continue
		}
		if adjust == nil {
			adjust = &api.ContainerAdjustment{}
		}
		adjust.AddEnv(key, strings.Join(addresses[key], ","))
	}
	return adjust
}

// addressesByKey returns the variables' names in order and their addresses: of
// those devices that this container gets, which may be one request of several.
func addressesByKey(used []*assignment.Assignment, g *given) (keys []string, addresses map[string][]string) {
	addresses = map[string][]string{}
	for _, a := range used {
		for i := range a.Devices {
			d := &a.Devices[i]
			if !g.has(d) {
				continue
			}
			key := envKey(d.Request)
			if addresses[key] == nil {
				keys = append(keys, key)
			}
			addresses[key] = append(addresses[key], d.Address.String())
		}
	}
	return keys, addresses
}

// has reports whether the container gets the device, by name or by a node.
func (g *given) has(d *assignment.Device) bool {
	return slices.Contains(g.cdi, d.CDI) || slices.ContainsFunc(g.devices, func(n *api.LinuxDevice) bool {
		return !isControl(n.GetPath()) && slices.Contains(d.Nodes, n.GetPath())
	})
}

// envKey returns the variable of a request. A subrequest goes by the request
// that it is an alternative of: that is what the pod's container names.
func envKey(request string) string {
	request, _, _ = strings.Cut(request, "/")
	return envPrefix + strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToUpper(request))
}

// Package cdi turns a prepared claim into a Container Device Interface spec, one file per claim, in the narrow form that Kata's runtimes
// accept: each device has its VFIO nodes with real device numbers and nothing else.
//
// A physical endpoint reaches its VM through the pod's network namespace and has no node. The spec still has a device for it: CDI names
// identify a claim's devices everywhere, and the device tells the container the interface's address.
package cdi

import (
	"fmt"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

const (
	// Kind is the CDI vendor and class of all our devices.
	Kind = "kata-vfio.dev/vfio"
	// SpecVersion is the CDI version of the specs. Kata's Go runtime reads versions up to 0.6.0 (its CDI library). Device names that begin
	// with a digit, as a claim's UID may, need 0.5.0 (CDI SPEC.md, "Released versions").
	SpecVersion = "0.5.0"
)

// Node is a character device of the host.
type Node struct {
	// Path is the node's path, the same on the host and in the container: Kata
	// tells VFIO devices by it.
	Path         string
	Major, Minor int64
}

// DeviceName is the unqualified CDI name of a claim's device.
func DeviceName(claimUID, device string) string { return claimUID + "-" + device }

// QualifiedName is the CDI name that the kubelet hands to the runtime:
// "kata-vfio.dev/vfio=<claim UID>-<device>".
func QualifiedName(claimUID, device string) string {
	return Kind + "=" + DeviceName(claimUID, device)
}

// Spec returns the spec of a claim. nodes holds the nodes of each device, by its index in the plan. Without nodes
// a device is an error unless it is an endpoint, since CDI has no empty devices.
func Spec(p *plan.Plan, nodes [][]Node) (*specs.Spec, error) {
	spec := &specs.Spec{Version: SpecVersion, Kind: Kind}
	for i := range p.Devices {
		d := &p.Devices[i]
		if d.Attachment == v1alpha1.AttachPhysicalEndpoint {
			spec.Devices = append(spec.Devices, endpoint(p, d))
			continue
		}
		if i >= len(nodes) || len(nodes[i]) == 0 {
			return nil, fmt.Errorf("CDI spec of claim %s: device %s has no VFIO node", p.Claim, d.Name)
		}
		spec.Devices = append(spec.Devices, specs.Device{
			Name:           DeviceName(p.Claim.UID, d.Name),
			ContainerEdits: specs.ContainerEdits{DeviceNodes: deviceNodes(nodes[i])},
		})
	}
	return spec, nil
}

// endpoint returns the device of a physical endpoint. It sets KATA_VFIO_MAC_<REQUEST> in the environment, by which a container finds the
// interface. If the claim has several endpoints with this variable, each of their devices sets it to all addresses, in the claim's order,
// separated by commas: a container gets all devices of a request, and CDI keeps one of several values of a variable.
func endpoint(p *plan.Plan, d *plan.Device) specs.Device {
	variable := macVariable(d)
	var macs []string
	for i := range p.Devices {
		if other := &p.Devices[i]; other.Attachment == v1alpha1.AttachPhysicalEndpoint && macVariable(other) == variable {
			macs = append(macs, mac(p, other))
		}
	}
	return specs.Device{
		Name:           DeviceName(p.Claim.UID, d.Name),
		ContainerEdits: specs.ContainerEdits{Env: []string{variable + "=" + strings.Join(macs, ",")}},
	}
}

// macVariable is the environment variable with the addresses of a request's endpoints.
func macVariable(d *plan.Device) string {
	return "KATA_VFIO_MAC_" + strings.NewReplacer("-", "_", "/", "_", ".", "_").Replace(strings.ToUpper(d.Request))
}

// mac is the MAC address that the plan sets for a device; empty if it sets none.
func mac(p *plan.Plan, d *plan.Device) string {
	if fn, ok := p.Function(d.Address); ok && fn.VF != nil {
		return fn.VF.Want.MAC
	}
	return ""
}

func deviceNodes(nodes []Node) []*specs.DeviceNode {
	list := make([]*specs.DeviceNode, len(nodes))
	for i, n := range nodes {
		list[i] = &specs.DeviceNode{Path: n.Path, Type: "c", Major: n.Major, Minor: n.Minor, Permissions: "rw"}
	}
	return list
}

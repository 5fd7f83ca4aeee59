package effects

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// WriteSpec finds the VFIO nodes of a record's devices and writes the record's CDI spec. A record of policy "bound" or
// of a warm device has no spec.
func (set *Set) WriteSpec(_ context.Context, rec *journal.Record) error {
	if rec.Kind == journal.Bound {
		return nil
	}
	var nodes [][]cdi.Node
	err := set.Observe.Timed(rec.Plan.Claim, PhaseNode, func() (err error) {
		nodes, err = set.nodes(&rec.Plan)
		return err
	})
	if err != nil {
		return err
	}
	spec, err := cdi.Spec(&rec.Plan, nodes)
	if err != nil {
		return err
	}
	return set.Observe.Timed(rec.Plan.Claim, PhaseCDI, func() error { return set.Specs.Write(rec.ID(), spec) })
}

// RemoveSpec removes the record's CDI spec.
func (set *Set) RemoveSpec(_ context.Context, rec *journal.Record) error {
	if rec.Kind == journal.Bound {
		return nil
	}
	return set.Observe.Timed(rec.Plan.Claim, PhaseCDI, func() error { return set.Specs.Remove(rec.ID()) })
}

// nodes returns the VFIO nodes of each device of a plan.
func (set *Set) nodes(pl *plan.Plan) ([][]cdi.Node, error) {
	all := make([][]cdi.Node, len(pl.Devices))
	for i := range pl.Devices {
		if pl.Devices[i].Attachment == v1alpha1.AttachPhysicalEndpoint {
			continue // it has none
		}
		nodes, err := set.deviceNodes(pl, &pl.Devices[i])
		if err != nil {
			return nil, fmt.Errorf("VFIO node of %s: %w", pl.Devices[i].Address, err)
		}
		all[i] = nodes
	}
	return all, nil
}

// deviceNodes returns the nodes of one device: the group's with the Group
// backend, one for each given function with IOMMUFD, and the control node
// where the config asks for it.
func (set *Set) deviceNodes(pl *plan.Plan, d *plan.Device) ([]cdi.Node, error) {
	if d.Backend == v1alpha1.BackendIOMMUFD {
		return set.functionNodes(d)
	}
	fn, ok := pl.Function(d.Address)
	if !ok {
		return nil, fmt.Errorf("the plan does not take the device's own function")
	}
	number := strconv.Itoa(fn.Group)
	group, err := hostNode(set.FS, vfio.GroupNode(fn.Group), "sys/class/vfio/"+number+"/dev")
	if err != nil || !d.ControlNode {
		return []cdi.Node{group}, err
	}
	control, err := hostNode(set.FS, "/dev/vfio/vfio", "sys/class/misc/vfio/dev")
	return []cdi.Node{group, control}, err
}

func (set *Set) functionNodes(d *plan.Device) ([]cdi.Node, error) {
	var nodes []cdi.Node
	for _, a := range d.Give {
		n, err := functionNode(set.FS, a)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	if !d.ControlNode {
		return nodes, nil
	}
	control, err := hostNode(set.FS, "/dev/iommu", "sys/class/misc/iommu/dev")
	return append(nodes, control), err
}

// functionNode returns the VFIO character device of a function, by its only
// entry in vfio-dev (Documentation/ABI/testing/sysfs-devices-vfio-dev).
func functionNode(fs *sysfs.FS, a pci.Address) (cdi.Node, error) {
	dir := "sys/bus/pci/devices/" + a.String() + "/vfio-dev"
	names, err := fs.ReadDir(dir)
	if err != nil {
		return cdi.Node{}, fmt.Errorf("%s has no VFIO character device: %w", a, err)
	}
	if len(names) != 1 {
		return cdi.Node{}, fmt.Errorf("%s has %d VFIO character devices, want 1", a, len(names))
	}
	return hostNode(fs, vfio.DeviceNode(names[0]), dir+"/"+names[0]+"/dev")
}

// hostNode returns the node at path, with the device number that sysfs states in the attribute. It checks that the node
// exists: a runtime that finds it missing fails much later, and with less information.
func hostNode(fs *sysfs.FS, path, attribute string) (cdi.Node, error) {
	text, err := fs.ReadString(attribute)
	if err != nil {
		return cdi.Node{}, err
	}
	// The spec gets the kernel's number, so that the container's node is this device even if the path leads elsewhere
	// by then.
	major, minor, err := number(text)
	if err != nil {
		return cdi.Node{}, fmt.Errorf("%s: %w", attribute, err)
	}
	there, err := fs.Exists(strings.TrimPrefix(path, "/"))
	if err != nil {
		return cdi.Node{}, err
	}
	if !there {
		return cdi.Node{}, fmt.Errorf("%s does not exist, but the kernel has the device: check that /dev is a devtmpfs and mounted from the host", path)
	}
	return cdi.Node{Path: path, Major: major, Minor: minor}, nil
}

// number parses the kernel's "major:minor".
func number(text string) (major, minor int64, err error) {
	a, b, ok := strings.Cut(text, ":")
	if !ok {
		return 0, 0, fmt.Errorf("%q is not major:minor", text)
	}
	if major, err = strconv.ParseInt(a, 10, 32); err != nil {
		return 0, 0, fmt.Errorf("%q is not major:minor: %w", text, err)
	}
	if minor, err = strconv.ParseInt(b, 10, 32); err != nil {
		return 0, 0, fmt.Errorf("%q is not major:minor: %w", text, err)
	}
	return major, minor, nil
}

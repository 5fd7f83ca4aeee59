package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
)

// drainTarget has the devices of a drain's target, with the claims that have them, and the pools of its node.
type drainTarget struct {
	devices []fleet.Device
	pools   []string
}

// drained returns the target of a drain. While the plugin writes a pool of the node, slices are missing, and their devices and claims
// with them. So drained waits until all pools are written, at most for the limit of the drain.
func (s *session) drained(ctx context.Context, out io.Writer, client lister, target string, d *draining) (*drainTarget, error) {
	limit, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	said := ""
	for {
		found, writing, err := s.drainTarget(ctx, client, target)
		if len(writing) == 0 || found == nil {
			return found, err
		}
		said = progress(out, said, "the plugin, which writes "+strings.Join(writing, ", "))
		select {
		case <-limit.Done():
			return nil, fmt.Errorf("read the devices of %s: the plugin is still writing pool %s, so devices may be missing: %w; "+
				"find out why (`kubectl kata-vfio status`), and drain again", target, strings.Join(writing, ", "), context.Cause(limit))
		case <-time.After(d.pause):
		}
	}
}

// drainTarget returns the target of a drain as the slices are now, and the pools of its node that are being written. An error about
// the devices comes with an empty target.
func (s *session) drainTarget(ctx context.Context, client lister, target string) (found *drainTarget, writing []string, err error) {
	node, device, _ := strings.Cut(target, "/")
	w := want{needs: []fleet.Kind{fleet.Slices, fleet.Claims}, node: node, now: s.now}
	state, err := w.read(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	found = &drainTarget{}
	for _, p := range state.Cluster.Pools() {
		if p.Node != node {
			continue
		}
		found.pools = append(found.pools, p.Name)
		if p.Unfinished() {
			writing = append(writing, p.Name)
		}
	}
	found.devices, err = state.Together(node, device)
	return found, writing, err
}

// selectors select the pools of a whole node, or each device.
func (t *drainTarget) selectors(whole bool) []*resourceapi.DeviceTaintSelector {
	var all []*resourceapi.DeviceTaintSelector
	if whole {
		for i := range t.pools {
			all = append(all, &resourceapi.DeviceTaintSelector{Driver: new(v1alpha1.DriverName), Pool: &t.pools[i]})
		}
		return all
	}
	for i := range t.devices {
		all = append(all, &resourceapi.DeviceTaintSelector{Driver: new(v1alpha1.DriverName), Pool: &t.devices[i].Pool, Device: &t.devices[i].Name})
	}
	return all
}

// canonical names a device by its name in the slice, however the command line did, so that undrain finds the drain by either.
func canonical(target string, devices []fleet.Device) string {
	node, device, single := strings.Cut(target, "/")
	if !single || slices.ContainsFunc(devices, func(d fleet.Device) bool { return d.Name == device }) {
		return target
	}
	if i := slices.IndexFunc(devices, func(d fleet.Device) bool { return strings.EqualFold(d.Address, device) }); i >= 0 {
		return node + "/" + devices[i].Name
	}
	return target
}

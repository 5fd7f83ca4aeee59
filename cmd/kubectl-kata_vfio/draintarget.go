package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
)

// drainTarget has the devices of a drain's target, with the claims that have them, and the pools of its node. The plugin is writing some
// pools that may have the target.
type drainTarget struct {
	devices        []fleet.Device
	pools, writing []string
}

// toDrain returns what the rules select. A single device must be known, so it waits for pools that the plugin is writing. Rules of a whole
// node need the names of its pools only, and must not wait for a plugin that hangs.
func (s *session) toDrain(cmd *cobra.Command, client lister, target string, d *draining) (*drainTarget, error) {
	if !strings.Contains(target, "/") {
		found, err := s.drainTarget(cmd.Context(), client, target)
		if found != nil && len(found.writing) > 0 {
			return found, nil
		}
		return found, err
	}
	found, err := s.drained(cmd.Context(), cmd.ErrOrStderr(), client, target, d)
	if u, ok := errors.AsType[*unfinishedError](err); ok {
		return nil, &verdictError{fmt.Sprintf("after %s, %v: nothing is drained; find out why (`kubectl kata-vfio status`), and drain again", d.limit, u)}
	}
	return found, err
}

// unknown says that a node's rules stay, although its devices and claims are not known.
func (d *draining) unknown(r *drainReport, err error) error {
	stay := "the rules stay"
	if d.dry {
		stay = "nothing was changed"
	}
	if u, ok := errors.AsType[*unfinishedError](err); ok {
		return &verdictError{fmt.Sprintf("after %s, %v: %s; find out why (`kubectl kata-vfio status`), and drain %s again", d.limit, u, stay, r.Target)}
	}
	return fmt.Errorf("read the devices of %s: %w; %s", r.Target, err, stay)
}

// drained returns the target of a drain. While the plugin writes a pool, slices are missing, and their devices and claims with them.
// So drained waits until the target's pools are written, at most for the limit of the drain. If they are not, it returns what is
// there with an unfinishedError.
func (s *session) drained(ctx context.Context, out io.Writer, client lister, target string, d *draining) (*drainTarget, error) {
	limit, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	said := ""
	for {
		found, err := s.drainTarget(ctx, client, target)
		if found == nil || len(found.writing) == 0 {
			return found, err
		}
		said = progress(out, said, "the plugin, which writes "+strings.Join(found.writing, ", "))
		select {
		case <-ctx.Done():
			return found, context.Cause(ctx)
		case <-limit.Done():
			return found, &unfinishedError{found.writing}
		case <-time.After(d.pause):
		}
	}
}

// drainTarget returns the target of a drain as the slices are now. An error about the devices comes with a target that may have
// pools, but no devices.
func (s *session) drainTarget(ctx context.Context, client lister, target string) (*drainTarget, error) {
	node, device, _ := strings.Cut(target, "/")
	w := want{needs: []fleet.Kind{fleet.Slices, fleet.Claims}, node: node, now: s.now}
	state, err := w.read(ctx, client)
	if err != nil {
		return nil, err
	}
	found := &drainTarget{}
	found.devices, err = state.Together(node, device)
	for _, p := range state.Cluster.Pools() {
		if p.Node != node {
			continue
		}
		found.pools = append(found.pools, p.Name)
		if p.Unfinished() && found.mayBeIn(p.Name, device) {
			found.writing = append(found.writing, p.Name)
		}
	}
	return found, err
}

// mayBeIn reports whether a pool may have the target. A device and its pairs are in one pool.
func (t *drainTarget) mayBeIn(pool, device string) bool {
	return device == "" || len(t.devices) == 0 || slices.ContainsFunc(t.devices, func(d fleet.Device) bool { return d.Pool == pool })
}

// unfinishedError says that the plugin did not finish pools in the time that a drain waits for it.
type unfinishedError struct{ pools []string }

func (e *unfinishedError) Error() string {
	return "the plugin is still writing pool " + strings.Join(e.pools, ", ") + ", so devices and claims may be missing"
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

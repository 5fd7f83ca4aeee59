package nri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// mounts decides on the mounts from the host.
func (k *check) mounts() *rule.Verdict {
	if k.rules.exempt(k.pod) {
		return nil
	}
	for _, m := range k.given.mounts {
		if shown := exposed(m); shown != nil {
			return k.refuse(rule.MountNotAllowed, shown.Object, "%s", shown.Text)
		}
	}
	if k.rules.allowed(k.pod) {
		return k.sources()
	}
	return nil
}

// exposed returns why a mount is refused: it shows VFIO nodes of the host. Nil for any other mount.
func exposed(m *api.Mount) *rule.Verdict {
	switch source := m.GetSource(); {
	case strings.EqualFold(m.GetType(), "devtmpfs"):
		return cdi.CheckHostPath("/dev")
	case !strings.HasPrefix(source, "/"):
		return nil // a file system without a path: proc, tmpfs
	default:
		return cdi.CheckHostPath(source)
	}
}

// sources decides on mounts into a VM by what their sources are on the node, whatever their paths look like. A mount of a
// device node is refused unless the container has the same device as a device, by volumeDevices or a claim. A source that
// can't be looked at is refused.
func (k *check) sources() *rule.Verdict {
	var paths []string
	for _, m := range k.given.mounts {
		switch source := m.GetSource(); {
		case strings.HasPrefix(source, "/"):
			paths = append(paths, source)
		case isBind(m):
			return k.unseen(m, errRelative)
		}
	}
	devices, err := k.host.Devices(k.pod.GetNamespace(), paths)
	if err != nil {
		at, _ := errors.AsType[*fs.PathError](err)
		return k.unseen(k.given.findMount(at), err)
	}
	for _, m := range k.given.mounts {
		if d, is := devices[m.GetSource()]; is && !k.given.has(d) {
			return k.deviceMount(m, d)
		}
	}
	return nil
}

// errRelative is for a bind mount whose source the runtime would look for below the container's bundle.
var errRelative = errors.New("its source is not an absolute path")

// isBind reports whether a mount shows files of the node; an adjustment that removes a mount does not.
func isBind(m *api.Mount) bool {
	_, removal := api.IsMarkedForRemoval(m.GetDestination())
	return !removal && (m.GetType() == "bind" || slices.Contains(m.GetOptions(), "bind") || slices.Contains(m.GetOptions(), "rbind"))
}

// findMount returns the mount with the source that an error names; nil if there is none.
func (g *containerDevices) findMount(at *fs.PathError) *api.Mount {
	for _, m := range g.mounts {
		if at != nil && m.GetSource() == at.Path {
			return m
		}
	}
	return nil
}

// has reports whether the container gets a device, under any path.
func (g *containerDevices) has(d DeviceNode) bool {
	return slices.ContainsFunc(g.devices, func(own *api.LinuxDevice) bool {
		kind := d.Block && own.GetType() == "b" || !d.Block && isChar(own.GetType())
		return kind && own.GetMajor() == int64(d.Major) && own.GetMinor() == int64(d.Minor)
	})
}

// deviceMount refuses the mount of a device node. The number is for the log: it is the node's.
func (k *check) deviceMount(m *api.Mount, d DeviceNode) *rule.Verdict {
	kind := "character"
	if d.Block {
		kind = "block"
	}
	return &rule.Verdict{
		Code: rule.MountNotAllowed, Object: m.GetDestination(),
		Text: fmt.Sprintf("what it mounts at %s is a %s device node", m.GetDestination(), kind),
		Fix:  "mount a directory or a regular file; block devices come by volumeDevices, others by ResourceClaims",
		Err:  fmt.Errorf("%s is %s", m.GetSource(), d),
	}
}

// unseen refuses a mount whose source can't be looked at; m is nil if it is unknown which.
func (k *check) unseen(m *api.Mount, err error) *rule.Verdict {
	why := "can't be read"
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, ErrBusy):
		why = "did not answer in time"
	case errors.Is(err, fs.ErrNotExist):
		why = "does not exist on the node"
	case errors.Is(err, errRelative):
		why = "is not an absolute path"
	}
	return &rule.Verdict{
		Code: rule.Unverifiable, Object: m.GetDestination(), Err: &sourceError{err},
		Text: fmt.Sprintf("the source of its mount at %s %s, and a mount of a device node is refused", m.GetDestination(), why),
		Fix:  "check the volume; see the plugin's log on this node; the kubelet tries again",
	}
}

// sourceError is why the source of a mount can't be looked at.
type sourceError struct{ err error }

// Error returns the cause.
func (e *sourceError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *sourceError) Unwrap() error { return e.err }

// sourceGone reports whether the reason is that the source of a mount does not exist.
func sourceGone(v *rule.Verdict) bool {
	_, ok := errors.AsType[*sourceError](v.Err)
	return ok && errors.Is(v.Err, fs.ErrNotExist)
}

package plan

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// locked refuses a function on which an operation hangs in the kernel.
func (c *candidate) locked(f *device.Function) *Refusal {
	text := fmt.Sprintf("an operation on %s hangs in the kernel, so its state can't be read", f.Address)
	fix := "end the process that has the device open, or restart the node"
	if f.Detaching != "" {
		text = fmt.Sprintf("unbinding %s from driver %s hangs in the kernel", f.Address, f.Detaching)
	}
	if device.WaitsForUsers(f.Detaching) {
		fix = device.NeverLetsGo
	}
	return c.mate(f, Locked, text, fix)
}

// letGo refuses a GPU that its driver can't let go of: with nvidia_drm's modeset, the
// driver itself uses a GPU that has a display engine, and its unbind waits for the end
// of that use. GPUs without one (3D controllers) are not used by it.
func (c *candidate) letGo() *Refusal {
	if !c.node.Snapshot.Host.NVIDIAModeset {
		return nil
	}
	for _, t := range c.all {
		if device.WaitsForUsers(t.f.Driver) && t.f.Class.Sub() == pci.ClassVGA {
			return c.mate(t.f, Forbidden,
				fmt.Sprintf("%s can't be unbound from driver %s: nvidia_drm has modeset on and uses the GPU for its display, and the unbind would hang in the kernel", t.f.Address, t.f.Driver),
				"keep the driver off it (policy: bound, with early binding), or set nvidia_drm's modeset=0 on the kernel command line or in modprobe.d and restart the node")
		}
	}
	return nil
}

package inventory

import (
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// frameBuffers are the frame buffers that the firmware set up and no driver for the display took over.
type frameBuffers []device.FrameBuffer

// readFrameBuffers reads the frame buffers from the kernel's map of memory. If the map can't be read (a node that hides it, a copy that
// does not have it), it takes the platform devices of frame buffers that have a driver.
func readFrameBuffers(fsys *sysfs.FS) *frameBuffers {
	iomem, err := fsys.ReadFile("proc/iomem")
	found := frameBuffers(device.ParseFrameBuffers(string(iomem)))
	if err != nil {
		found = boundFrameBuffers(fsys)
	}
	return &found
}

// boundFrameBuffers returns the frame buffers that have a driver. Since Linux 6.9 their devices are below the display in the device tree.
// On older kernels the display is the adapter that the firmware booted with.
func boundFrameBuffers(fsys *sysfs.FS) frameBuffers {
	var found frameBuffers
	for _, driver := range device.FrameBufferDrivers() {
		devices, err := members(fsys, path.Join("sys/bus/platform/drivers", driver))
		if err != nil {
			continue // there is nothing else to ask
		}
		for _, m := range devices {
			if !strings.HasPrefix(m.name, driver+".") {
				continue
			}
			b := device.FrameBuffer{Name: m.name}
			if a, ok := lastAddress(m.where); ok {
				b.Function = &a
			} else {
				b.OfBootVGA = true
			}
			found = append(found, b)
		}
	}
	return found
}

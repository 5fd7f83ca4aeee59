package inventory

import (
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// console says through what the kernel's virtual console is shown.
type console struct {
	// text is set when it is VGA text mode, which the boot VGA adapter has.
	text bool
	// frames is set when it is a frame buffer: that of the functions in owners,
	// or, if firmware is set, one that the firmware set up (efifb, simpledrm) in
	// the memory of the boot VGA adapter, whichever that is.
	frames   bool
	firmware bool
	owners   map[pci.Address]bool
}

// readConsole reads what the virtual console is bound to: "(S) VGA+", "(M)
// frame buffer device" or "(S) dummy device" (drivers/tty/vt/vt.c show_name).
func readConsole(fs *sysfs.FS) (*console, error) {
	consoles, err := members(fs, "sys/class/vtconsole")
	if err != nil {
		return nil, err
	}
	c := &console{owners: map[pci.Address]bool{}}
	for _, m := range consoles {
		dir := path.Join("sys/class/vtconsole", m.name)
		bound, err1 := readOptional(fs, dir+"/bind")
		name, err2 := readOptional(fs, dir+"/name")
		if err := firstError(err1, err2); err != nil {
			return nil, err
		}
		c.text = c.text || isOn(bound) && strings.Contains(name, "VGA")
		c.frames = c.frames || isOn(bound) && strings.Contains(name, "frame buffer")
	}
	buffers, err := members(fs, "sys/class/graphics")
	if err != nil {
		return nil, err
	}
	for _, m := range buffers {
		a, ok := lastAddress(m.where)
		switch {
		case !strings.HasPrefix(m.name, "fb") || m.name == "fbcon":
		case ok:
			c.owners[a] = true
		default:
			c.firmware = true
		}
	}
	return c, nil
}

// uses reports whether the boot console is on f. Only the adapter that the
// firmware showed its messages on counts: the kernel puts its console on any
// other display too, where nobody needs it.
func (c *console) uses(f *device.Function) []device.Use {
	shown := c.text || c.frames && (c.firmware || c.owners[f.Address])
	if !f.BootVGA || !shown {
		return nil
	}
	name := "vga"
	if len(f.Children.DRM) > 0 {
		name = f.Children.DRM[0]
	}
	return []device.Use{{Kind: device.UseConsole, Name: name}}
}

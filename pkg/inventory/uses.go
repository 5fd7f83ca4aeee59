package inventory

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// judgeUses finds the uses that the node has for the functions of fresh now. It reads a source only
// if a function's children need it: most functions have no children, and those on VFIO never do.
func (s *scan) judgeUses(ctx context.Context, fresh []*device.Function) error {
	for _, f := range fresh {
		uses, err := s.readUses(ctx, f)
		if err != nil {
			return err
		}
		f.Uses = append(f.Uses, uses...)
	}
	return nil
}

func (s *scan) readUses(ctx context.Context, f *device.Function) (uses []device.Use, err error) {
	if len(f.Children.Net) > 0 {
		if s.network == nil {
			if s.network, err = readNetwork(ctx, s.fs, s.ask); err != nil {
				return nil, err
			}
		}
		if uses, err = s.network.uses(f); err != nil {
			return nil, err
		}
	}
	if len(f.Children.Block) > 0 {
		if s.mounts == nil {
			if s.mounts, err = s.readMounts(); err != nil {
				return nil, err
			}
		}
		found, err := s.mounts.uses(f)
		if err != nil {
			return nil, err
		}
		uses = append(uses, found...)
	}
	if f.BootVGA {
		found, err := readConsole(s.fs)
		if err != nil {
			return nil, err
		}
		uses = append(uses, found.uses(f)...)
	}
	if f.Class.Base() == pci.BaseDisplay && f.VF == nil && !s.hadNoFrameBuffer(f) {
		if s.frames == nil {
			s.frames = readFrameBuffers(s.fs)
		}
		uses = append(uses, device.FrameBufferUses(f, *s.frames)...)
	}
	return uses, nil
}

// hadNoFrameBuffer reports whether the same device had no frame buffer before. The kernel creates the firmware's frame buffers only at boot
// (drivers/firmware/sysfb.c sysfb_init), so such a device has none now.
func (s *scan) hadNoFrameBuffer(f *device.Function) bool {
	before := s.keeps(f.Address).of(f).before
	return before != nil && !slices.ContainsFunc(before.Uses, func(u device.Use) bool { return u.Kind == device.UseConsole })
}

// owners are the functions that are being read, by address.
type owners map[pci.Address]*device.Function

func newOwners(fresh []*device.Function) owners {
	o := make(owners, len(fresh))
	for _, f := range fresh {
		o[f.Address] = f
	}
	return o
}

// at returns the function to which a place in the device tree belongs; nil if it is none of the owners.
func (o owners) at(where string) *device.Function {
	a, ok := lastAddress(where)
	if !ok {
		return nil
	}
	return o[a]
}

// adopt finds the children of the functions of fresh at any depth: the disks of a SCSI or USB controller, a USB netdev, and all device
// nodes. The kernel's lists of block devices, netdevs and device numbers name the places of all of them in the device tree.
func (s *scan) adopt(fresh []*device.Function) error {
	adopt := s.adoptListed
	if s.isSmall(fresh) {
		adopt = s.adoptBelow
	}
	if err := adopt(newOwners(fresh)); err != nil {
		return err
	}
	for _, f := range fresh {
		if err := adoptNVIDIA(s.fs, f); err != nil {
			return err
		}
	}
	for _, f := range fresh {
		c := &f.Children
		c.Net, c.Block, c.Nodes = sorted(c.Net), sorted(c.Block), sorted(c.Nodes)
	}
	return nil
}

// adoptListed finds the children in the kernel's lists. It is for many functions.
func (s *scan) adoptListed(o owners) error {
	if err := s.adoptNet(o); err != nil {
		return err
	}
	if err := s.adoptBlock(o); err != nil {
		return err
	}
	return s.adoptNodes(o)
}

// adoptNet finds the netdevs below other devices of a function. Those right below it are known.
func (s *scan) adoptNet(o owners) error {
	known := map[string]bool{}
	for _, f := range o {
		for _, name := range f.Children.Net {
			known[name] = true
		}
	}
	all, err := membersBut(s.fs, "sys/class/net", func(name string) bool { return known[name] })
	if err != nil {
		return err
	}
	for _, m := range all {
		f := o.at(m.where)
		if f == nil {
			continue
		}
		uppers, err := uppersAt(s.fs, m.where)
		if err != nil {
			return err
		}
		f.Children.Net = append(f.Children.Net, m.name)
		f.Uses = append(f.Uses, masters(m.name, uppers)...)
	}
	return nil
}

// adoptBlock finds the disks of a function wherever they are, and their nodes.
func (s *scan) adoptBlock(o owners) error {
	storage, err := s.readStorage()
	if err != nil {
		return err
	}
	for _, b := range storage.devices {
		for _, a := range b.owners {
			f, ok := o[a]
			if !ok {
				continue
			}
			f.Children.Nodes = append(f.Children.Nodes, nodeName(b.name))
			if b.disk == "" {
				f.Children.Block = append(f.Children.Block, b.name)
			}
		}
	}
	return nil
}

// nodeName returns the name below /dev of a device whose node is named like
// it; sysfs writes "!" for a slash ("cciss!c0d0").
func nodeName(name string) string { return strings.ReplaceAll(name, "!", "/") }

// isConsole reports whether a device number is a virtual console's: 4:0 to
// 4:63 and major 7 (Documentation/admin-guide/devices.txt). There are more of
// them than of all others together, and none is on a PCI function.
func isConsole(number string) bool {
	major, minor, _ := strings.Cut(number, ":")
	return major == "7" || major == "4" && (len(minor) == 1 || len(minor) == 2 && minor < "64")
}

// adoptNodes finds the character device nodes of the functions.
func (s *scan) adoptNodes(o owners) error {
	all, err := membersBut(s.fs, "sys/dev/char", isConsole)
	if err != nil {
		return err
	}
	for _, m := range all {
		f := o.at(m.where)
		if f == nil {
			continue
		}
		name, err := devName(s.fs, m.where)
		if err != nil {
			return err
		}
		if name != "" {
			f.Children.Nodes = append(f.Children.Nodes, name)
		}
	}
	return nil
}

// devName returns the name of a device's node below /dev, from its uevent; empty if it has none or no longer exists.
func devName(fsys *sysfs.FS, where string) (string, error) {
	if dir, name := path.Split(where); strings.HasSuffix(dir, "/vfio-dev/") {
		return "vfio/devices/" + name, nil // one for each of thousands: not worth a read
	}
	text, err := readOptional(fsys, where+"/uevent")
	return variable(text, "DEVNAME"), err
}

// adoptNVIDIA finds the node that NVIDIA's own driver creates without sysfs.
func adoptNVIDIA(fsys *sysfs.FS, f *device.Function) error {
	if f.Driver != "nvidia" {
		return nil
	}
	text, err := readOptional(fsys, "proc/driver/nvidia/gpus/"+f.Address.String()+"/information")
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if minor, ok := strings.CutPrefix(line, "Device Minor:"); ok && isNumber(strings.TrimSpace(minor)) {
			f.Children.Nodes = append(f.Children.Nodes, "nvidia"+strings.TrimSpace(minor))
		}
	}
	return nil
}

// member is one device of a class and its place in the device tree.
type member struct{ name, where string }

// members lists a class ("sys/class/net") or another directory of links into
// the device tree; empty when the tree has none.
func members(fsys *sysfs.FS, class string) ([]member, error) {
	return membersBut(fsys, class, func(string) bool { return false })
}

// membersBut is members without those whose names skip is true for.
func membersBut(fsys *sysfs.FS, class string, skip func(name string) bool) ([]member, error) {
	dir, err := fsys.OpenDir(class)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	all := make([]member, 0, len(names))
	for _, name := range slices.DeleteFunc(names, skip) {
		// bonding_masters in class/net is a file, and a device may have been removed meanwhile.
		target, ok, err := dir.Link(name)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, member{name: name, where: path.Join(class, target)})
		}
	}
	return all, nil
}

// readOptional returns a file's text, empty when there is none.
func readOptional(fsys *sysfs.FS, file string) (string, error) {
	text, err := fsys.ReadString(file)
	if sysfs.Vanished(err) {
		return "", nil
	}
	return text, err
}

// variable returns the value of one line "NAME=value".
func variable(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// sorted returns the names in order and without doubles, nil when empty.
func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// readInit reads a file below proc that differs for each process, as the node's first process sees it. In a container with the host's PID
// namespace, and with the host's proc below the root, that is the host's view. If that file can't be read (a captured tree, no privilege),
// readInit reads the file of the reading process. It returns the empty string if there is neither.
func readInit(fsys *sysfs.FS, file string) (string, error) {
	text, err := fsys.ReadString("proc/1/" + file)
	if err == nil {
		return text, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return "", err
	}
	return readOptional(fsys, "proc/self/"+file)
}

package inventory

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// A blockDevice is a disk or one of its partitions.
type blockDevice struct {
	name string
	// disk is the disk that contains the partition; empty if the device is a disk itself.
	disk string
	// owners are the functions behind the block device: several for an NVMe namespace with native multipath, none for a virtual device.
	owners []pci.Address
}

// storage is what the node knows of block devices.
type storage struct{ devices []blockDevice }

// readStorage lists the block devices. It reads them once for each scan.
func (s *scan) readStorage() (*storage, error) {
	if s.storage != nil {
		return s.storage, nil
	}
	all, err := members(s.fs, "sys/class/block")
	if err != nil {
		return nil, err
	}
	places := make(map[string]bool, len(all))
	for _, m := range all {
		places[m.where] = true
	}
	st := &storage{devices: make([]blockDevice, len(all))}
	for i, m := range all {
		b, disk := blockDevice{name: m.name}, m.where
		// A partition's directory is in that of its disk.
		if above := path.Dir(m.where); places[above] {
			b.disk, disk = path.Base(above), above
		}
		if b.owners, err = s.blockOwners(disk); err != nil {
			return nil, err
		}
		st.devices[i] = b
	}
	s.storage = st
	return st, nil
}

// blockOwners returns the functions behind the block device at a place. With
// NVMe's native multipath that is the place of the subsystem, which links to
// its controllers (drivers/nvme/host/multipath.c).
func (s *scan) blockOwners(where string) ([]pci.Address, error) {
	if a, ok := lastAddress(where); ok {
		return []pci.Address{a}, nil
	}
	subsystem := path.Dir(where)
	if path.Base(path.Dir(subsystem)) != "nvme-subsystem" {
		return nil, nil
	}
	controllers, err := members(s.fs, subsystem)
	if err != nil {
		return nil, err
	}
	var owners []pci.Address
	for _, c := range controllers {
		if a, ok := lastAddress(c.where); ok && strings.HasPrefix(c.name, "nvme") {
			owners = append(owners, a)
		}
	}
	return owners, nil
}

// partitions returns the names of a disk and its partitions.
func (st *storage) partitions(disk string) []string {
	names := []string{disk}
	for _, b := range st.devices {
		if b.disk == disk {
			names = append(names, b.name)
		}
	}
	return names
}

// mounts holds the uses that the node makes of its block devices: mounts and swaps.
type mounts struct {
	fs *sysfs.FS
	// byNumber and bySource hold mount points, by "major:minor" and by the name of the mounted node. Both are needed: btrfs and similar
	// file systems mount under a number that is not the device's.
	byNumber, bySource map[string][]string
	swap               map[string]bool // by the node's name
	storage            *storage
}

// readMounts reads the mounts and swaps of the node.
func (s *scan) readMounts() (*mounts, error) {
	storage, err := s.readStorage()
	if err != nil {
		return nil, err
	}
	mountinfo, err := readInit(s.fs, "mountinfo")
	if err != nil {
		return nil, err
	}
	swaps, err := readOptional(s.fs, "proc/swaps")
	if err != nil {
		return nil, err
	}
	m := &mounts{fs: s.fs, byNumber: map[string][]string{}, bySource: map[string][]string{}, swap: parseSwaps(swaps), storage: storage}
	for _, line := range lines(mountinfo) {
		mount, err := parseMount(line)
		if err != nil {
			return nil, err
		}
		m.byNumber[mount.number] = append(m.byNumber[mount.number], mount.point)
		// btrfs mounts have an anonymous device number. Only the source names the disk.
		if name, ok := strings.CutPrefix(mount.source, "/dev/"); ok {
			m.bySource[name] = append(m.bySource[name], mount.point)
		}
	}
	return m, nil
}

// A mount is one line of mountinfo.
type mount struct{ number, point, source string }

// parseMount reads a line of proc/<pid>/mountinfo (proc_pid_mountinfo(5)):
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseMount(line string) (mount, error) {
	before, after, ok := strings.Cut(line, " - ")
	f, rest := strings.Fields(before), strings.Fields(after)
	if !ok || len(f) < 5 || len(rest) < 2 {
		return mount{}, fmt.Errorf("mountinfo line %q: want a device number, a mount point and a source", line)
	}
	return mount{number: f[2], point: unescape(f[4]), source: unescape(rest[1])}, nil
}

// unescape undoes the octal escapes of proc's path names.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(s)
}

// parseSwaps returns the names of the devices in proc/swaps. It leaves out swap files: such a file is found by the mount that it is on.
func parseSwaps(text string) map[string]bool {
	names := map[string]bool{}
	for _, line := range lines(text) {
		if name, ok := strings.CutPrefix(strings.SplitN(line, " ", 2)[0], "/dev/"); ok {
			names[unescape(name)] = true
		}
	}
	return names
}

// uses returns what the node does with f's disks.
func (m *mounts) uses(f *device.Function) ([]device.Use, error) {
	var uses []device.Use
	for _, disk := range f.Children.Block {
		for _, name := range m.storage.partitions(disk) {
			found, err := m.partUses(name, name, nil)
			if err != nil {
				return nil, err
			}
			uses = append(uses, found...)
		}
	}
	return uses, nil
}

// partUses returns the uses of the block device name, which is part itself or a device that is built on part. The uses are reported as uses
// of part. above lists the devices between the two.
func (m *mounts) partUses(part, name string, above []string) ([]device.Use, error) {
	number, err := readOptional(m.fs, "sys/class/block/"+name+"/dev")
	if err != nil {
		return nil, err
	}
	suffix := ""
	if len(above) > 0 {
		suffix = " through " + strings.Join(above, " and ")
	}
	var uses []device.Use
	if points := sorted(append(m.bySource[nodeName(name)], m.byNumber[number]...)); len(points) > 0 {
		uses = append(uses, device.Use{Kind: device.UseMount, Name: part, Detail: listing(points) + suffix})
	}
	if m.swap[nodeName(name)] {
		uses = append(uses, device.Use{Kind: device.UseSwap, Name: part, Detail: strings.TrimSpace(suffix)})
	}
	stacked, err := m.stack(part, name, above)
	return append(uses, stacked...), err
}

// stack returns the uses of a block device by the devices built directly on it, and the uses of these devices.
func (m *mounts) stack(part, name string, above []string) ([]device.Use, error) {
	holders, err := m.fs.ReadDir("sys/class/block/" + name + "/holders")
	if sysfs.Vanished(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var uses []device.Use
	for _, holder := range holders {
		if len(above) == 0 {
			uses = append(uses, device.Use{Kind: device.UseStack, Name: part, Detail: m.title(holder)})
		}
		// Clip, so that the holders of one device don't write into the same array.
		found, err := m.partUses(part, holder, append(slices.Clip(above), holder))
		if err != nil {
			return nil, err
		}
		uses = append(uses, found...)
	}
	return uses, nil
}

// title returns a block device's name together with the name that people know: "dm-0 (vg0-data)".
func (m *mounts) title(name string) string {
	known, err := readOptional(m.fs, path.Join("sys/class/block", name, "dm/name"))
	if err != nil || known == "" {
		return name
	}
	return name + " (" + known + ")"
}

// listing returns the first of several names and the number of the others: a volume of a container is mounted in many places.
func listing(all []string) string {
	if len(all) == 1 {
		return all[0]
	}
	return fmt.Sprintf("%s and %d more", all[0], len(all)-1)
}

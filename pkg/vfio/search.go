package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// search looks for open files of some nodes.
type search struct {
	fs *sysfs.FS
	// live says that the root's proc is the kernel's, whose links lead to the open files themselves. In a captured
	// tree, the links are only text.
	live bool
	// names are the wanted nodes. A name that ends in "/" stands for all nodes in that directory. numbers has those of
	// them whose device number is known, by type and number. majors has the directories whose nodes have a major number
	// to themselves.
	names   map[string]bool
	numbers map[number]string
	majors  map[uint32]string
	// pids are the processes that proc listed.
	pids []int
	// unnumbered is set if a node is known by its name only.
	unnumbered bool
	// vfio are the major numbers of VFIO's nodes, nil if they are not known.
	vfio map[uint32]bool
	// comparable says that the kernel can compare the tables of descriptors of the node's processes.
	comparable bool
	// limit is how many open files of one table are looked at.
	limit int
}

// number identifies a device node: its type (S_IFCHR or S_IFBLK) and device.
type number struct {
	kind         uint32
	major, minor uint32
}

func newSearch(fsys *sysfs.FS, nodes []string) (*search, error) {
	s := &search{fs: fsys, names: map[string]bool{}, numbers: map[number]string{}, majors: map[uint32]string{}, limit: maxDescriptors}
	parts, err := driverParts(fsys, nodes)
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if err := s.add(node, parts); err != nil {
			return nil, err
		}
	}
	if s.live, s.pids, err = readProc(fsys); err != nil {
		return nil, err
	}
	if !s.live {
		return s, nil
	}
	s.vfio, s.comparable = vfioMajors(fsys), canCompare(fsys)
	return s, wholeNode(fsys)
}

// add enters a node that is looked for.
func (s *search) add(node string, parts map[string]uint32) error {
	s.names[node] = true
	numbered := s.addShared(node, parts)
	if strings.HasSuffix(node, "/") { // a directory has no number
		s.unnumbered = s.unnumbered || !numbered
		return nil
	}
	n, ok, err := readNumber(s.fs, node)
	if ok {
		s.numbers[n] = node
	}
	s.unnumbered = s.unnumbered || !ok && !numbered
	return err
}

// readNumber returns the number of a device node; false if the node does not exist or is a plain file.
func readNumber(fsys *sysfs.FS, node string) (number, bool, error) {
	info, err := fsys.Stat(strings.TrimPrefix(node, "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return number{}, false, nil
	}
	if err != nil {
		return number{}, false, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeDevice == 0 {
		return number{}, false, nil
	}
	return number{kind: stat.Mode & unix.S_IFMT, major: unix.Major(stat.Rdev), minor: unix.Minor(stat.Rdev)}, true, nil
}

// readProc reports whether proc below the root is the kernel's, and which processes it lists.
func readProc(fsys *sysfs.FS) (live bool, pids []int, err error) {
	dir, err := fsys.OpenDir(sysfs.Proc)
	if err != nil {
		return false, nil, err
	}
	defer dir.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(dir.Fd(), &stat); err != nil {
		return false, nil, fmt.Errorf("statfs proc: %w", err)
	}
	names, err := dir.Names()
	return stat.Type == unix.PROC_SUPER_MAGIC, numbers(names), err
}

// initialPIDNamespace is what the link of a process in the node's own PID
// namespace reads (PROC_PID_INIT_INO in include/linux/proc_ns.h).
const initialPIDNamespace = "pid:[4026531836]"

// wholeNode checks that proc shows all processes of the node, and not only those of one container.
func wholeNode(fsys *sysfs.FS) error {
	namespace, err := fsys.ReadLink(sysfs.Process(1, "ns/pid"))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCannotSee, err)
	}
	if namespace != initialPIDNamespace {
		return fmt.Errorf("%w: process 1 is in PID namespace %s", ErrCannotSee, namespace)
	}
	return nil
}

// process returns the holdings of one process.
func (s *search) process(ctx context.Context, pid int) ([]Holder, error) {
	held, err := s.held(ctx, pid)
	if err != nil {
		return nil, seen(err)
	}
	if len(held) == 0 {
		return nil, nil
	}
	who, err := describe(s.fs, pid)
	if err != nil {
		return nil, seen(err)
	}
	holders := make([]Holder, len(held))
	for i, node := range held {
		holders[i] = who
		holders[i].Node = node
	}
	return holders, nil
}

// seen classifies an error of inspecting a process. It returns nil if the process has ended, and an error that matches
// ErrCannotSee if this process lacks the privilege to inspect it.
func seen(err error) error {
	switch {
	// proc answers ESRCH for a file of a process that has ended since the file was opened.
	case sysfs.Vanished(err), errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrCannotSee, err)
	}
	return err
}

// held returns the nodes that a process has open.
func (s *search) held(ctx context.Context, pid int) ([]string, error) {
	held := map[string]bool{}
	err := s.files(ctx, pid, func(o *openFile) error {
		opened, err := s.opened(o)
		for _, node := range opened {
			held[node] = true
		}
		return err
	})
	return slices.Sorted(maps.Keys(held)), err
}

// opened returns those wanted nodes that an open file holds. It looks twice: if the descriptor is closed in between, it
// may belong to another file at the second look.
func (s *search) opened(o *openFile) ([]string, error) {
	nodes, err := s.nodes(o)
	if err != nil || len(nodes) == 0 || o.isPathOnly() {
		return nil, err
	}
	return s.nodes(o)
}

// nodes returns the wanted nodes that an open file belongs to. A VFIO device belongs to its group's node and to its own
// node. In a live tree, the name of a plain file means nothing, because any container may have a file that is named
// like a node.
func (s *search) nodes(o *openFile) ([]string, error) {
	if s.live {
		if n, isNode := o.number(); isNode {
			return s.byNumber(o, n)
		}
	}
	target, ok, err := o.link()
	switch {
	case !ok, err != nil: // closed meanwhile
		return nil, err
	case target == "anon_inode:[vfio-device]":
		return s.byDevice(o)
	case s.live:
		return nil, nil
	}
	return s.byName(target), nil
}

// byNumber finds the node with a device number. It finds nodes whose number is not known by name, such as nodes that
// were removed while open.
func (s *search) byNumber(o *openFile, n number) ([]string, error) {
	if node, ok := s.numbers[n]; ok {
		return []string{node}, nil
	}
	if node, ok := s.majors[n.major]; ok && n.kind == unix.S_IFCHR {
		return []string{node}, nil
	}
	if !s.unnumbered {
		return nil, nil
	}
	target, _, err := o.link()
	if !s.maybe(strings.TrimSuffix(target, deleted), n) {
		return nil, err
	}
	return s.byName(target), err
}

// deleted is what a link to an open file ends with that has no name any more.
const deleted = " (deleted)"

// maybe reports whether a device with the number may be the node with the name, whose own number is not known. A node
// of VFIO has one of VFIO's major numbers: a container may give such a name to another device.
func (s *search) maybe(name string, n number) bool {
	return !strings.HasPrefix(name, "/dev/vfio/") || s.vfio == nil || n.kind == unix.S_IFCHR && s.vfio[n.major]
}

// vfioMajors returns the major numbers of VFIO's nodes (drivers/vfio registers "vfio" and "vfio-dev"), nil if proc
// does not say it.
func vfioMajors(fsys *sysfs.FS) map[uint32]bool {
	majors, err := characterMajors(fsys)
	if err != nil {
		return nil
	}
	found := map[uint32]bool{}
	for name, major := range majors {
		if name == "vfio" || strings.HasPrefix(name, "vfio-") {
			found[major] = true
		}
	}
	return found
}

// byName finds the node of a link's text.
func (s *search) byName(target string) []string {
	target = strings.TrimSuffix(target, deleted)
	if s.names[target] {
		return []string{target}
	}
	if dir, _ := path.Split(target); s.names[dir] {
		return []string{dir}
	}
	return nil
}

// byDevice finds the nodes of an open VFIO device by the place of its function,
// which newer kernels write to fdinfo.
func (s *search) byDevice(o *openFile) ([]string, error) {
	text, ok, err := o.info()
	if !ok || err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		place, ok := strings.CutPrefix(line, "vfio-device-syspath:")
		if !ok {
			continue
		}
		addr, err := pci.ParseAddress(path.Base(strings.TrimSpace(place)))
		if err != nil {
			return nil, nil // not a PCI device
		}
		return s.byFunction(addr)
	}
	return nil, nil
}

// byFunction finds the nodes that lead to a function by VFIO.
func (s *search) byFunction(addr pci.Address) ([]string, error) {
	group, ok, err := s.fs.GroupNumber(addr)
	if errors.Is(err, sysfs.ErrNoFunction) || err == nil && !ok {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes := []string{GroupNode(group), NoIOMMUNode(group)}
	names, err := s.fs.ReadDir(sysfs.FunctionPath(addr) + "/vfio-dev")
	if sysfs.Vanished(err) {
		err = nil
	}
	for _, name := range names {
		nodes = append(nodes, DeviceNode(name))
	}
	return slices.DeleteFunc(nodes, func(node string) bool { return !s.names[node] }), err
}

// number returns the device number of an open device node, false for any other file. It requests cached
// attributes only: an open file on a network file system that hangs must not block the search.
func (o *openFile) number() (number, bool) {
	var stat unix.Statx_t
	if unix.Statx(o.dir.Fd(), o.fd, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat) != nil {
		return number{}, false
	}
	kind := uint32(stat.Mode) & unix.S_IFMT
	if kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return number{}, false
	}
	return number{kind: kind, major: stat.Rdev_major, minor: stat.Rdev_minor}, true
}

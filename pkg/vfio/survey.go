package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// survey looks through the processes of a node.
type survey struct {
	search *search
	// hidden is the number of processes that could not be inspected, and why the reason for the first of them.
	hidden int
	why    error
	// denied says that the reason is a missing privilege.
	denied   bool
	patience patience
}

func newSurvey(fsys *sysfs.FS) (*survey, error) {
	s, err := newSearch(fsys, nil)
	if err != nil {
		return nil, err
	}
	if err := wholeNode(fsys); err != nil {
		return nil, err
	}
	for _, class := range []struct{ sys, dev string }{{"sys/class/vfio", "/dev/vfio/"}, {"sys/class/vfio-dev", "/dev/vfio/devices/"}} {
		if err := s.addClass(class.sys, class.dev); err != nil {
			return nil, err
		}
	}
	return &survey{search: s, patience: maxPatience}, nil
}

// addClass adds the nodes of a class of devices, with the numbers that the kernel
// states for them: dev below the root need not be the node's own.
func (s *search) addClass(class, dev string) error {
	names, err := s.fs.ReadDir(class)
	if err != nil && !sysfs.Vanished(err) {
		return err
	}
	for _, name := range names {
		s.names[dev+name] = true
		text, err := s.fs.ReadString(path.Join(class, name, "dev"))
		if sysfs.Vanished(err) {
			continue
		}
		if err != nil {
			return err
		}
		var n number
		if _, err := fmt.Sscanf(text, "%d:%d", &n.major, &n.minor); err != nil {
			return fmt.Errorf("%s/%s/dev says %q: %w", class, name, text, err)
		}
		n.kind = unix.S_IFCHR
		s.numbers[n] = dev + name
	}
	return nil
}

func (s *survey) hide(pid int, err error) {
	s.hidden++
	s.denied = s.denied || errors.Is(err, fs.ErrPermission)
	if s.why == nil {
		s.why = uninspectable(s.search.fs, pid, err)
	}
}

// blind returns why not all processes were seen, nil if they were.
func (s *survey) blind() error {
	if s.hidden == 0 {
		return nil
	}
	if s.denied {
		return fmt.Errorf("%w: %d of them, %w", ErrCannotSee, s.hidden, s.why)
	}
	return fmt.Errorf("could not look into %d of the node's processes: %w", s.hidden, s.why)
}

// process returns how one process uses functions. If it returns an error, it also returns what it found before.
func (s *survey) process(ctx context.Context, pid int) (Usage, error) {
	if err := ctx.Err(); err != nil {
		return Usage{}, err
	}
	proc := sysfs.Process(pid)
	u := Usage{Process: Process{PID: pid}}
	err := s.openFiles(ctx, pid, &u)
	if err == nil {
		u.Registers, err = s.mapped(ctx, proc)
	}
	if !u.Holds() && len(u.Registers) == 0 {
		return u, err
	}
	if who := s.introduce(ctx, proc, &u.Process); who != nil {
		return Usage{}, who
	}
	return u, err
}

// openFiles enters what the process has open.
func (s *survey) openFiles(ctx context.Context, pid int, u *Usage) error {
	err := s.search.files(ctx, pid, func(o *openFile) error { return s.openFile(o, u) })
	slices.Sort(u.Nodes)
	u.Nodes = slices.Compact(u.Nodes)
	slices.SortFunc(u.Devices, pci.Address.Compare)
	u.Devices = slices.Compact(u.Devices)
	return err
}

// openFile adds one open file to the usage of a process. Targets that are not paths are the names of the kernel's
// anonymous inodes (virt/kvm/kvm_main.c, drivers/hv/mshv_root_main.c, drivers/vfio/group.c). It reads each link, so
// that a copy of the node has the link.
func (s *survey) openFile(o *openFile, u *Usage) error {
	target, ok, err := o.link()
	if !ok || err != nil {
		return err // closed meanwhile
	}
	switch target {
	case "anon_inode:kvm-vm", "anon_inode:mshv_partition":
		u.VM = true
		return nil
	case "anon_inode:[vfio-device]":
		return s.openDevice(o, u)
	}
	if node := s.node(o, target); node != "" {
		return s.openNode(o, node, u)
	}
	return nil
}

// openNode adds an open VFIO node to the usage. It looks at the descriptor once more: if the file was closed meanwhile,
// the descriptor may belong to another file.
func (s *survey) openNode(o *openFile, node string, u *Usage) error {
	if o.isPathOnly() {
		return nil
	}
	target, ok, err := o.link()
	if ok && s.node(o, target) == node {
		u.Nodes = append(u.Nodes, node)
	}
	return err
}

// node returns the VFIO node that an open file belongs to, empty for any other file. In a live tree, the device
// number decides. A node that was removed while it was open keeps its name, but its number is no longer known.
func (s *survey) node(o *openFile, target string) string {
	name, gone := strings.CutSuffix(target, deleted)
	if !s.search.live {
		if s.search.names[name] || isNode(name) {
			return name
		}
		return ""
	}
	n, ok := o.number()
	if !ok {
		return ""
	}
	if node, ok := s.search.numbers[n]; ok {
		return node
	}
	if s.search.maybe(name, n) && (s.search.names[name] || gone && isNode(name)) {
		return name
	}
	return ""
}

// isNode reports whether a path is that of a VFIO group's or function's node.
func isNode(name string) bool {
	dir, base := path.Split(name)
	switch dir {
	case "/dev/vfio/":
		_, err := strconv.Atoi(strings.TrimPrefix(base, "noiommu-"))
		return err == nil
	case "/dev/vfio/devices/":
		return strings.HasPrefix(base, "vfio")
	}
	return false
}

// openDevice adds an open VFIO device to the usage. Newer kernels name the function in fdinfo
// (Documentation/filesystems/proc.rst, "VFIO Device files").
func (s *survey) openDevice(o *openFile, u *Usage) error {
	text, _, err := o.info()
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		place, ok := strings.CutPrefix(line, "vfio-device-syspath:")
		if !ok {
			continue
		}
		if addr, err := pci.ParseAddress(path.Base(strings.TrimSpace(place))); err == nil {
			u.Devices = append(u.Devices, addr)
		}
		return nil // no PCI function: a platform device
	}
	u.Unnamed++
	return nil
}

// introduce enters who the process is.
func (s *survey) introduce(ctx context.Context, proc string, p *Process) error {
	who, err := describe(s.search.fs, p.PID)
	if err != nil {
		return err
	}
	p.Comm, p.StartTime, p.Container, p.UID = who.Comm, who.StartTime, who.Container, -1
	if p.Cgroup, err = s.search.fs.ReadString(proc + "/cgroup"); err != nil {
		return err
	}
	if status, err := s.search.fs.ReadString(proc + "/status"); err == nil {
		p.Parent, p.UID = parseStatus(status)
	}
	p.Exe, _ = s.search.fs.ReadLink(proc + "/exe") // informative only, so it may be missing
	if text, err := s.patience.read(ctx, s.search.fs, proc+"/cmdline", maxArguments); err == nil {
		p.Arguments = sysfs.ParseArguments(text)
	}
	return nil
}

// parseStatus returns the parent and the effective user by the text of
// proc/<pid>/status; zero and -1 where it does not have them.
func parseStatus(status string) (parent, uid int) {
	uid = -1
	if fields := statusFields(status, "PPid"); len(fields) == 1 {
		parent, _ = strconv.Atoi(fields[0]) // zero, which no process has, if it is not a number
	}
	if fields := statusFields(status, "Uid"); len(fields) == 4 {
		if effective, err := strconv.Atoi(fields[1]); err == nil {
			uid = effective
		}
	}
	return parent, uid
}

func statusFields(status, name string) []string {
	value, _ := sysfs.StatusField(status, name)
	return strings.Fields(value)
}

// Limits of what is read of one process.
const (
	maxMaps      = 32 << 20
	maxArguments = 64 << 10
)

// errLongMap says that a process has too many mappings to inspect.
var errLongMap = errors.New("its memory map is too long")

// mapped returns the functions whose resource files a process has mapped.
func (s *survey) mapped(ctx context.Context, proc string) ([]pci.Address, error) {
	text, err := s.maps(ctx, proc)
	if err != nil {
		return nil, err
	}
	if len(text) == maxMaps {
		// The text was cut off, perhaps before the line that matters.
		return nil, errLongMap
	}
	var mapped []pci.Address
	for line := range strings.Lines(text) {
		if m, ok := parseMapping(line); ok && s.isResource(&m) {
			mapped = append(mapped, m.function)
		}
	}
	slices.SortFunc(mapped, pci.Address.Compare)
	return slices.Compact(mapped), nil
}

// maps returns the memory map of a process; empty for a thread of the kernel.
func (s *survey) maps(ctx context.Context, proc string) (string, error) {
	text, err := s.patience.read(ctx, s.search.fs, proc+"/maps", maxMaps)
	switch {
	case errors.Is(err, errSlow) && s.isKernelThread(proc):
		return "", nil // the node is short of processor time: a kernel thread has no map whose lock could be held
	case err != nil || text != "":
		return text, err
	}
	return s.threadMaps(ctx, proc)
}

// threadMaps returns the memory map of a process whose first thread has ended. The kernel shows the map of such a
// process only with the threads that are left (exit_mm in kernel/exit.c). The map is empty if no thread has one.
func (s *survey) threadMaps(ctx context.Context, proc string) (string, error) {
	threads, err := s.search.fs.ReadDir(proc + "/task")
	if err != nil && !sysfs.Vanished(err) {
		return "", err
	}
	for _, name := range threads {
		if name == path.Base(proc) {
			continue
		}
		text, err := s.patience.read(ctx, s.search.fs, path.Join(proc, "task", name, "maps"), maxMaps)
		if sysfs.Vanished(err) {
			continue
		}
		if err != nil || text != "" {
			return text, err
		}
	}
	return "", nil
}

// isKernelThread reports whether a process is known to be a thread of the kernel.
func (s *survey) isKernelThread(proc string) bool {
	stat, err := s.search.fs.ReadString(proc + "/stat")
	if err != nil {
		return false
	}
	is, err := sysfs.IsKernelThread(stat)
	return is && err == nil
}

// mapping is a mapping of a function's resource file.
type mapping struct {
	function pci.Address
	file     string // resource0, resource2_wc
	inode    uint64
}

// parseMapping reads a line of proc/<pid>/maps; false if it does not map a resource file of a PCI function
// (proc_pid_maps(5)).
func parseMapping(line string) (mapping, bool) {
	if !strings.Contains(line, "/resource") {
		return mapping{}, false
	}
	const inode, name = 4, 5
	fields := strings.Fields(line)
	if len(fields) <= name {
		return mapping{}, false
	}
	m := mapping{file: path.Base(fields[name])}
	var err error
	if m.function, err = pci.ParseAddress(path.Base(path.Dir(fields[name]))); err != nil {
		return mapping{}, false
	}
	m.inode, err = strconv.ParseUint(fields[inode], 10, 64)
	return m, err == nil && strings.HasPrefix(m.file, "resource")
}

// isResource reports whether the mapped file is the kernel's resource file, and not another file of the same name. The
// inode number decides, because all mounts of sysfs have the same inode numbers.
func (s *survey) isResource(m *mapping) bool {
	if !s.search.live {
		return true
	}
	info, err := s.search.fs.Stat(path.Join(sysfs.FunctionPath(m.function), m.file))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Ino == m.inode
}

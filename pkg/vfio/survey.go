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
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// survey looks through the processes of a node.
type survey struct {
	*search
	// hidden counts the processes that could not be looked into; why is the first
	// one's reason.
	hidden int
	why    error
	// denied: privilege is what is missing.
	denied bool
	// patience is what is left of the time to wait for processes.
	patience time.Duration
}

// How long a survey waits for processes that don't let their memory be read: for
// one, and for all together. A node that is short of processor time is slow with
// each. When patience has ended, a read that takes no longer than atOnce still counts.
const (
	maxWait     = time.Second
	maxPatience = 10 * time.Second
	atOnce      = 20 * time.Millisecond
)

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
		s.why = fmt.Errorf("process %d: %w", pid, err)
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
	return fmt.Errorf("%d processes could not be looked into: %w", s.hidden, s.why)
}

// process returns what one process has. What was found before an error is
// returned with it.
func (s *survey) process(ctx context.Context, pid int) (Usage, error) {
	if err := ctx.Err(); err != nil {
		return Usage{}, err
	}
	proc := "proc/" + strconv.Itoa(pid)
	u := Usage{Process: Process{PID: pid}}
	err := s.openFiles(ctx, proc, &u)
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
func (s *survey) openFiles(ctx context.Context, proc string, u *Usage) error {
	dir, err := s.fs.OpenDir(proc + "/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	fds, err := dir.Names()
	if err != nil {
		return err
	}
	for i, fd := range fds {
		if i%1024 == 1023 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.openFile(proc, dir, fd, u); err != nil {
			return err
		}
	}
	slices.Sort(u.Nodes)
	u.Nodes = slices.Compact(u.Nodes)
	slices.SortFunc(u.Devices, pci.Address.Compare)
	u.Devices = slices.Compact(u.Devices)
	return nil
}

// openFile enters what one open file is. The names of files that are no nodes are
// those of the kernel's anonymous inodes (virt/kvm/kvm_main.c, drivers/hv/
// mshv_root_main.c, drivers/vfio/group.c).
func (s *survey) openFile(proc string, dir *sysfs.Dir, fd string, u *Usage) error {
	target, ok, err := dir.Link(fd)
	if !ok || err != nil {
		return err // closed meanwhile
	}
	switch {
	case target == "anon_inode:kvm-vm", target == "anon_inode:mshv_partition":
		u.VM = true
	case target == "anon_inode:[vfio-device]":
		return s.openDevice(proc, fd, u)
	case strings.HasPrefix(target, "/"):
		if node := s.nodeOf(dir, fd, target); node != "" {
			return s.openNode(proc, dir, fd, node, u)
		}
	}
	return nil
}

// openNode enters an open VFIO node. It looks once more which file it is: a descriptor
// that was closed meanwhile may be that of another file.
func (s *survey) openNode(proc string, dir *sysfs.Dir, fd, node string, u *Usage) error {
	if isPathOnly(s.fs, proc, fd) {
		return nil
	}
	target, ok, err := dir.Link(fd)
	if ok && s.nodeOf(dir, fd, target) == node {
		u.Nodes = append(u.Nodes, node)
	}
	return err
}

// nodeOf returns the VFIO node that an open file is of, empty for any other. The
// number decides on a live node. A node that has gone while it was open keeps its
// name, and its number is known no more.
func (s *survey) nodeOf(dir *sysfs.Dir, fd, target string) string {
	if s.live {
		n, ok := numberOfFile(dir, fd)
		if !ok {
			return ""
		}
		if node, ok := s.numbers[n]; ok {
			return node
		}
	}
	name, gone := strings.CutSuffix(target, " (deleted)")
	if s.names[name] || (gone || !s.live) && isNode(name) {
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

// openDevice enters an open VFIO device: newer kernels say in fdinfo which it is
// (Documentation/filesystems/proc.rst, "VFIO Device files").
func (s *survey) openDevice(proc, fd string, u *Usage) error {
	text, err := s.fs.ReadString(proc + "/fdinfo/" + fd)
	if err != nil && !sysfs.Vanished(err) {
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

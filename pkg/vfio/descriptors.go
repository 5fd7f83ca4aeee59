package vfio

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// maxDescriptors is how many open files of one table are looked at: twice as many as the kernel allows a process unless
// fs.nr_open was changed. They take some seconds.
const maxDescriptors = 2 << 20

// errManyFiles says that a process has more open files than are looked at.
var errManyFiles = errors.New("it has too many open files: stop it (delete its pod), then try again")

// openFile is one open file of a process.
type openFile struct {
	fs *sysfs.FS
	// task is the process or thread: "proc/4711", "proc/4711/task/4712".
	task string
	// dir is its directory of open files, and fd the name of this one in it.
	dir *sysfs.Dir
	fd  string
}

// link returns the target of the link to the file; false if it was closed meanwhile. It is empty for a path that is
// too long for the kernel to say (d_path writes one page): no node has such a name, and any process can have such a
// file open.
func (o *openFile) link() (target string, ok bool, err error) {
	target, ok, err = o.dir.Link(o.fd)
	if errors.Is(err, unix.ENAMETOOLONG) {
		return "", true, nil
	}
	return target, ok, err
}

// info returns what fdinfo says of the file.
func (o *openFile) info() (string, error) { return o.fs.ReadString(o.task + "/fdinfo/" + o.fd) }

// files calls do for each open file of a process, in all its tables of descriptors. It ends with the first error.
func (s *search) files(ctx context.Context, pid int, do func(*openFile) error) error {
	process := sysfs.Process(pid)
	if err := s.filesIn(ctx, process, do); err != nil {
		return err
	}
	tasks, err := s.tables(ctx, pid)
	if err != nil {
		return err
	}
	for _, tid := range tasks {
		err := s.filesIn(ctx, process+"/task/"+strconv.Itoa(tid), do)
		if err != nil && s.live && seen(err) != nil {
			return err
		}
	}
	return nil
}

// filesIn is files for the table of one task.
func (s *search) filesIn(ctx context.Context, task string, do func(*openFile) error) error {
	dir, err := s.fs.OpenDir(task + "/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	count := 0
	return dir.Each(func(fds []string) error {
		if count += len(fds); count > s.limit {
			return errManyFiles
		}
		for i, fd := range fds {
			if i%1024 == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := do(&openFile{fs: s.fs, task: task, dir: dir, fd: fd}); err != nil {
				return err
			}
		}
		return nil
	})
}

// tables returns a thread for each table of descriptors of a process that is not its first thread's. A thread may have
// left the common table (unshare(2) with CLONE_FILES), and where the first thread has ended, only the others have it.
// A copy has the tables of those threads that mattered on the node.
func (s *search) tables(ctx context.Context, pid int) ([]int, error) {
	names, err := s.fs.ReadDir(sysfs.Process(pid, "task"))
	if err != nil {
		if sysfs.Vanished(err) || !s.live {
			err = nil
		}
		return nil, err
	}
	threads := slices.DeleteFunc(numbers(names), func(tid int) bool { return tid == pid })
	if !s.live || !s.comparable {
		return threads, nil
	}
	var apart []int
	for _, tid := range threads {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if order, err := compareTables(tid, pid); err == nil && order == 0 {
			continue
		}
		// kcmp(2) orders tables totally, so a binary search finds out whether this one is known. Thousands of threads may share
		// one.
		if i, same := slices.BinarySearchFunc(apart, tid, tableOrder); !same {
			apart = slices.Insert(apart, i, tid)
		}
	}
	return apart, nil
}

// tableOrder is [compareTables], which puts a table that can't be compared last.
func tableOrder(a, b int) int {
	order, err := compareTables(a, b)
	if err != nil {
		return -1
	}
	return order
}

// compareTables compares the tables of descriptors of two tasks in an order of the kernel's, 0 for the same one
// (kcmp(2) with KCMP_FILES).
func compareTables(a, b int) (int, error) {
	const files = 2 // KCMP_FILES in include/uapi/linux/kcmp.h
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), files, 0, 0, 0)
	switch {
	case errno != 0:
		return 0, errno
	case order == 0:
		return 0, nil
	case order == 1:
		return -1, nil
	}
	return 1, nil
}

// canCompare reports whether tasks can be compared by the numbers that the node's proc has for them: this process is in
// the node's PID namespace, and the kernel has kcmp(2).
func canCompare(fs *sysfs.FS) bool {
	own, err := fs.ReadLink("proc/self/ns/pid")
	if err != nil || own != initialPIDNamespace {
		return false
	}
	self := unix.Getpid()
	order, err := compareTables(self, self)
	return err == nil && order == 0
}

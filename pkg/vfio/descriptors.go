package vfio

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// maxDescriptors is how many open files of one table are inspected. It is twice as many as the kernel allows a process
// unless fs.nr_open was changed. To inspect that many takes some seconds.
const maxDescriptors = 2 << 20

// errManyFiles says that a process has more open files than maxDescriptors.
var errManyFiles = errors.New("it has too many open files: stop it (delete its pod), then try again")

// openFile is one open file of a process.
type openFile struct {
	fs *sysfs.FS
	// task is the process or thread: "proc/4711", "proc/4711/task/4712".
	task string
	// dir is the task's directory of open files, and fd the name of this file in it.
	dir *sysfs.Dir
	fd  string
}

// link returns the target of the link to the file, and false if the file was closed meanwhile. The target is empty if
// the path is too long for the kernel to print (d_path writes one page): no node has such a name, but any process can
// have such a file open.
func (o *openFile) link() (target string, ok bool, err error) {
	target, ok, err = o.dir.Link(o.fd)
	if errors.Is(err, unix.ENAMETOOLONG) {
		return "", true, nil
	}
	return target, ok, err
}

// info returns the text of fdinfo for the file, and false if the file was closed meanwhile. That says nothing of the
// process' other files.
func (o *openFile) info() (text string, ok bool, err error) {
	text, err = o.fs.ReadString(o.task + "/fdinfo/" + o.fd)
	if sysfs.Vanished(err) || errors.Is(err, unix.ESRCH) {
		return "", false, nil
	}
	return text, err == nil, err
}

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

// filesIn calls do for each open file in the table of one task.
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

// tables returns one thread for each table of descriptors of a process other than the table of its first thread. A
// thread may have left the common table (unshare(2) with CLONE_FILES). If the first thread has ended, only other
// threads have the common table. If tables can't be compared, tables returns all other threads. It does so too in a
// copy of a node, which has the tables of those threads that mattered on the node.
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
		// kcmp(2) orders all tables, so a binary search finds out whether this table is known already. Thousands of
		// threads may share one table.
		if i, same := slices.BinarySearchFunc(apart, tid, tableOrder); !same {
			apart = slices.Insert(apart, i, tid)
		}
	}
	return apart, nil
}

// tableOrder is [compareTables], but sorts a table that can't be compared last.
func tableOrder(a, b int) int {
	order, err := compareTables(a, b)
	if err != nil {
		return -1
	}
	return order
}

// compareTables compares the tables of descriptors of two tasks in an order that the kernel defines. It returns 0 if
// both have the same table (kcmp(2) with KCMP_FILES).
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

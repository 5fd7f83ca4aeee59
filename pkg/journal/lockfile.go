package journal

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// lockFile is the open file of a lock.
type lockFile struct {
	fd   int
	path string
	info *unix.Stat_t // nil before the first look
}

func (f *lockFile) close() { _ = unix.Close(f.fd) } // nothing is written to it

// isNamed reports whether the file's path still leads to it. Between open and flock, the former owner of a transient
// lock may have removed the file. The next caller then locks another file, and both would have the lock.
func (f *lockFile) isNamed() bool {
	var there, opened unix.Stat_t
	if unix.Stat(f.path, &there) != nil {
		return false
	}
	if f.info == nil {
		if unix.Fstat(f.fd, &opened) != nil {
			return false
		}
		f.info = &opened
	}
	return there.Dev == f.info.Dev && there.Ino == f.info.Ino
}

// retry repeats a system call that a signal interrupted: the Go runtime preempts goroutines by signals.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// maxKept is how many files stay open. It is limited because a node may have thousands of groups.
const maxKept = 64

// keptFiles are the files of free locks that stay open, one for each name.
type keptFiles struct {
	mu    sync.Mutex // guards files
	files map[string]*lockFile
}

// take removes and returns the file that is kept for a name; nil if there is none.
func (k *keptFiles) take(name string) *lockFile {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.files[name]
	delete(k.files, name)
	return f
}

// put keeps the file of a released lock. It returns false if the file is not kept, because the name has one already or
// there are too many.
func (k *keptFiles) put(name string, f *lockFile) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files[name] != nil || len(k.files) >= maxKept {
		return false
	}
	k.files[name] = f
	return true
}

// closeAll closes the files after nobody uses the Locks any more.
func (k *keptFiles) closeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.files {
		f.close()
	}
	clear(k.files)
}

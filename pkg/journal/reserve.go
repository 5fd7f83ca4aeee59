package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Reserve reserves space on the disk of the journal or the ledger for claims that end. The space is held by a file in
// the directory. While the file can't be created, no new claim begins. If the disk is full, the file is removed so that
// claims can end.
type Reserve struct {
	Dir string
	// Disks are the disks to ask; nil asks the kernel.
	Disks Disks
}

// Disks are the disks of directories.
type Disks interface {
	// Free returns how many bytes of a directory's disk are free.
	Free(dir string) (int64, error)
	// Number returns the device number of a directory's disk.
	Number(dir string) (uint64, error)
}

// kernelDisks asks the kernel. It implements [Disks].
type kernelDisks struct{}

// Free returns how many bytes the disk of a directory has for its files.
func (kernelDisks) Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look how much of the disk of %s is free: %w", dir, err)
	}
	// Bavail leaves out the blocks that the file system keeps for root.
	return int64(st.Bavail) * st.Bsize, nil
}

// Number implements [Disks].
func (kernelDisks) Number(dir string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	return st.Dev, err
}

const (
	// reserveBytes are enough for the records and events of hundreds of claims that end.
	reserveBytes = 16 << 20
	// lowBytes must be free besides the reserve for a claim to begin. If fewer bytes are free, the reserve is removed.
	lowBytes    = 4 << 20
	reserveName = "reserve"
)

// FullError is the error for a disk without space for another claim. Existing claims can end.
type FullError struct {
	Dir string
	// Free is the number of free bytes without the reserve.
	Free int64
	Err  error
}

func (e *FullError) Error() string {
	text := fmt.Sprintf("the disk of %s is full (%d MiB free): new claims are refused, and prepared claims can still be released; free %d MiB there",
		e.Dir, e.Free>>20, (reserveBytes+lowBytes)>>20)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Code returns the code that conditions and Events show.
func (e *FullError) Code() rule.Code { return rule.DiskFull }

func (e *FullError) Unwrap() error { return e.Err }

// Fill creates the reserve. It returns a [FullError] if the disk has no space for it, or hardly any left with it. It
// may be repeated.
func (r Reserve) Fill() error {
	err := r.allocate()
	if err != nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("reserve room on the disk of %s: %w", r.Dir, err)
	}
	free, freeErr := r.free()
	if freeErr != nil {
		return freeErr
	}
	if err != nil || free < lowBytes {
		return &FullError{Dir: r.Dir, Free: free, Err: err}
	}
	return nil
}

// allocate creates the file with all its blocks. If that fails, it leaves no file.
func (r Reserve) allocate() error {
	if info, err := os.Stat(r.path()); err == nil && info.Size() == reserveBytes {
		return nil
	}
	f, err := os.OpenFile(r.path(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, reserveBytes), f.Close())
	if errors.Is(err, unix.EOPNOTSUPP) { // the file system can't reserve blocks, so only the free space counts
		err = nil
	}
	if err != nil {
		return errors.Join(err, os.Remove(r.path()))
	}
	return nil
}

// Spend removes the reserve if the disk is nearly full. It may be repeated.
func (r Reserve) Spend() error {
	free, err := r.free()
	if err != nil || free >= lowBytes {
		return err
	}
	if err := os.Remove(r.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spend the reserve of the disk: %w", err)
	}
	return nil
}

func (r Reserve) path() string { return filepath.Join(r.Dir, reserveName) }

func (r Reserve) free() (int64, error) {
	if r.Disks == nil {
		return kernelDisks{}.Free(r.Dir)
	}
	return r.Disks.Free(r.Dir)
}

// Reserves reserve space on the disks of several directories. Each disk has one [Reserve], in the first of its
// directories. A directory that does not exist yet has none; the code that can't create the directory reports that.
type Reserves struct {
	Dirs []string
	// On are the disks that the directories are on; nil asks the kernel.
	On Disks
}

// Fill creates all reserves. It returns a [FullError] for each disk without space.
func (r Reserves) Fill() error { return r.each(Reserve.Fill) }

// Spend removes the reserves of disks that are nearly full.
func (r Reserves) Spend() error { return r.each(Reserve.Spend) }

func (r Reserves) each(act func(Reserve) error) error {
	dirs, err := r.Disks()
	for _, dir := range dirs {
		err = errors.Join(err, act(Reserve{Dir: dir, Disks: r.On}))
	}
	return err
}

// Space is the free space on the disk of a directory.
type Space struct {
	Dir string
	// Free is the number of bytes that are free for files, unless Err says why it is unknown.
	Free int64
	Err  error
}

// Space returns the free space of each disk, by the first of its directories. It leaves out a disk that can't be found,
// because claims are refused for that reason already.
func (r Reserves) Space() []Space {
	dirs, _ := r.Disks()
	all := make([]Space, len(dirs))
	for i, dir := range dirs {
		free, err := Reserve{Dir: dir, Disks: r.On}.free()
		all[i] = Space{Dir: dir, Free: free, Err: err}
	}
	return all
}

// Disks returns one directory for each disk, in order. After an error it returns the known ones.
func (r Reserves) Disks() (dirs []string, err error) {
	on := r.On
	if on == nil {
		on = kernelDisks{}
	}
	seen := map[uint64]bool{}
	for _, dir := range r.Dirs {
		number, diskErr := on.Number(dir)
		if errors.Is(diskErr, fs.ErrNotExist) {
			continue
		}
		if diskErr != nil {
			err = errors.Join(err, fmt.Errorf("look on which disk %s is: %w", dir, diskErr))
			continue
		}
		if !seen[number] {
			seen[number] = true
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

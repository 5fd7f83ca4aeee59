package journal

import (
	"errors"
	"fmt"
	"io/fs"
)

// Reserves keep room on the disks of several directories: a [Reserve] on each disk, in the
// first of its directories. A directory that does not exist yet has none; what fails to
// make it says so.
type Reserves struct {
	Dirs []string
	// Free is that of [Reserve].
	Free func(dir string) (int64, error)
	// Disk returns the number of a directory's disk; nil asks the kernel.
	Disk func(dir string) (uint64, error)
}

// Fill has all reserves there. It returns a [FullError] for each disk that has no room.
func (r Reserves) Fill() error { return r.each(Reserve.Fill) }

// Spend gives the reserves up of those disks that are about to be full.
func (r Reserves) Spend() error { return r.each(Reserve.Spend) }

func (r Reserves) each(act func(Reserve) error) error {
	dirs, err := r.Disks()
	for _, dir := range dirs {
		err = errors.Join(err, act(Reserve{Dir: dir, Free: r.Free}))
	}
	return err
}

// Disks returns one directory for each disk, in order. After an error it returns those
// that are known.
func (r Reserves) Disks() (dirs []string, err error) {
	disk := r.Disk
	if disk == nil {
		disk = diskOf
	}
	seen := map[uint64]bool{}
	for _, dir := range r.Dirs {
		number, diskErr := disk(dir)
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

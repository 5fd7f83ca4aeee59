package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Missing returns the directories above a path that are not there, outermost first.
func (d *Disk) Missing(name string) ([]string, error) {
	var missing []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := d.root.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return nil, fmt.Errorf("/%s is no directory", dir)
		case err == nil:
			return missing, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, explain("look at", dir, err)
		}
		missing = append([]string{dir}, missing...)
	}
	return missing, nil
}

// MakeDir makes a directory. One that is there is no error.
func (d *Disk) MakeDir(name string, mode fs.FileMode) error {
	return d.in(name, "make directory", func(dir *os.Root, base string) error {
		if err := dir.Mkdir(base, mode); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
}

// RemoveDir removes a directory if it is empty. One that is not, or is not there, stays
// as it is, and so does what somebody has put in its place.
func (d *Disk) RemoveDir(name string) error {
	return d.inThere(name, "remove directory", func(dir *os.Root, base string) error {
		info, err := dir.Lstat(base)
		if err != nil || !info.IsDir() {
			return err
		}
		err = dir.Remove(base)
		if errors.Is(err, fs.ErrNotExist) || isNotEmpty(err) {
			return nil
		}
		return err
	})
}

// Sweep removes what cut-off writes of a path have left beside it: the names that
// renameio makes, a dot before the name and a number behind it.
func (d *Disk) Sweep(name string) error {
	return d.inThere(name, "sweep beside", func(dir *os.Root, base string) error {
		f, err := dir.Open(".")
		if err != nil {
			return err
		}
		names, err := f.Readdirnames(-1)
		errs := []error{err, f.Close()}
		for _, other := range names {
			rest, ok := strings.CutPrefix(other, "."+base)
			if ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
				errs = append(errs, dir.Remove(other))
			}
		}
		return errors.Join(errs...)
	})
}

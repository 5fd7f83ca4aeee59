package writer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// Disk is a node's file system below one root. It changes files durably and atomically: a reader sees either the old file
// or the new one, and a completed write survives a power failure. It never writes through a link that leaves the root.
// Paths have no leading slash.
type Disk struct{ root *os.Root }

// OpenDisk returns the file system below a directory.
func OpenDisk(root string) (*Disk, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open the node's root: %w", err)
	}
	return &Disk{root: r}, nil
}

// Close closes the root.
func (d *Disk) Close() error { return d.root.Close() }

// Look returns the file at a path. It does not follow a link at the end of the path.
func (d *Disk) Look(name string) (state.Found, error) {
	info, err := d.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state.Found{Image: state.Image{Kind: state.Absent}}, nil
	case err != nil:
		return state.Found{}, explain("look at", name, err)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := d.root.Readlink(name)
		return state.Found{Image: state.Image{Kind: state.Link, Target: target}, ModTime: info.ModTime()}, explain("read", name, err)
	case !info.Mode().IsRegular():
		return state.Found{Image: state.Image{Kind: state.Other}, ModTime: info.ModTime()}, nil
	}
	return d.look(name)
}

func (d *Disk) look(name string) (state.Found, error) {
	// Another file may be at the path by now: a link is refused, and a FIFO does not block.
	f, err := d.root.OpenFile(name, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return state.Found{}, explain("read", name, err)
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	info, err := f.Stat()
	if err != nil {
		return state.Found{}, explain("read", name, err)
	}
	content, err := io.ReadAll(io.LimitReader(f, state.MaxImage+1))
	if err == nil && len(content) > state.MaxImage {
		err = fmt.Errorf("it is larger than %d bytes", state.MaxImage)
	}
	if err != nil {
		return state.Found{}, explain("read", name, err)
	}
	i := state.Image{Kind: state.RegularFile, Sum: state.Sum(content), Mode: info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)}
	i.UID, i.GID = state.Owner(info)
	if i.XAttrs, err = attributes(f); err != nil {
		return state.Found{}, explain("read the attributes of", name, err)
	}
	return state.Found{Image: i, Content: content, ModTime: info.ModTime()}, nil
}

// Write replaces or creates a file with the mode, owner and attributes of the image. The directory must exist. After an
// error the former file is unchanged, unless only the directory could not be made durable: then the new file is there.
func (d *Disk) Write(name string, content []byte, like state.Image) error {
	commit, _, err := d.Stage(name, content, like)
	if err != nil {
		return err
	}
	return commit()
}

// Stage writes a file durably next to the one that it replaces, so that commit needs no space. Call one of the two
// functions, once; discard keeps the former file.
func (d *Disk) Stage(name string, content []byte, like state.Image) (commit, discard func() error, err error) {
	dir, err := d.root.OpenRoot(path.Dir(name))
	if err != nil {
		return nil, nil, explain("write", name, err)
	}
	f, err := renameio.NewPendingFile(path.Base(name), renameio.WithRoot(dir), renameio.WithPermissions(0o600))
	if err != nil {
		return nil, nil, errors.Join(explain("write", name, err), dir.Close())
	}
	discard = func() error { return errors.Join(explain("clean up", name, f.Cleanup()), dir.Close()) }
	if err := fill(f, content, like); err != nil {
		return nil, nil, errors.Join(explain("write", name, err), discard())
	}
	commit = func() error {
		if err := f.CloseAtomicallyReplace(); err != nil {
			return errors.Join(explain("write", name, err), discard())
		}
		return errors.Join(explain("write", name, sync(dir)), dir.Close())
	}
	return commit, discard, nil
}

func fill(f *renameio.PendingFile, content []byte, like state.Image) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	// The owner comes first, because its change may clear the set-user-ID bits and capabilities (chown(2)).
	if err := f.Chown(like.UID, like.GID); err != nil {
		return err
	}
	if err := setAttributes(f.File, like.XAttrs); err != nil {
		return err
	}
	if err := f.Chmod(like.Mode); err != nil {
		return err
	}
	return f.Sync() // a full disk may be reported only now
}

// Symlink creates a link, or replaces the existing file. renameio.Symlink does the same, but follows links out of the tree,
// because it takes no [os.Root], and leaves the directory unsynced.
func (d *Disk) Symlink(name, target string) error {
	return d.in(name, "link", func(dir *os.Root, base string) error {
		temporary := "." + base + "0"
		if err := dir.Symlink(target, temporary); err != nil {
			return err
		}
		if err := dir.Rename(temporary, base); err != nil {
			return errors.Join(err, dir.Remove(temporary))
		}
		return nil
	})
}

// Remove removes a file or link. A missing one is not an error.
func (d *Disk) Remove(name string) error {
	return d.inThere(name, "remove", func(dir *os.Root, base string) error {
		if err := dir.Remove(base); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// in calls work in the directory of a path and makes the result durable there.
func (d *Disk) in(name, what string, work func(dir *os.Root, base string) error) error {
	dir, err := d.root.OpenRoot(path.Dir(name))
	if err != nil {
		return explain(what, name, err)
	}
	defer func() { _ = dir.Close() }()
	if err := work(dir, path.Base(name)); err != nil {
		return explain(what, name, err)
	}
	return explain(what, name, sync(dir))
}

// inThere is [Disk.in] for removals: if the directory does not exist, there is nothing to remove.
func (d *Disk) inThere(name, what string, work func(dir *os.Root, base string) error) error {
	if err := d.in(name, what, work); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sync makes a directory's entries durable, which a rename alone does not.
func sync(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Missing returns the directories above a path that do not exist, outermost first.
func (d *Disk) Missing(name string) ([]string, error) {
	var missing []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := d.root.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return nil, fmt.Errorf("/%s is not a directory", dir)
		case err == nil:
			return missing, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, explain("look at", dir, err)
		}
		missing = append([]string{dir}, missing...)
	}
	return missing, nil
}

// MakeDir creates a directory. An existing one is not an error.
func (d *Disk) MakeDir(name string, mode fs.FileMode) error {
	return d.in(name, "make directory", func(dir *os.Root, base string) error {
		if err := dir.Mkdir(base, mode); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
}

// RemoveDir removes an empty directory. It keeps anything else at the path. A missing directory is not an error.
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

// Sweep removes temporary files that interrupted writes of a path left next to it. renameio names them with a dot before
// the name and a number after it.
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

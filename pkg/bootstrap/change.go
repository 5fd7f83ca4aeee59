package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/boot"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/disk"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// change is a file that becomes another.
type change struct {
	file    state.File
	was     disk.Found
	to      disk.Image
	content []byte
	// back: it brings back what was before bootstrap.
	back bool
	// over is what need not follow any more, since the file goes that it was for.
	over []state.FollowUp
	// dirs are to be made first, outermost first.
	dirs []string
	// commit and discard are there once a file is staged.
	commit, discard func() error
}

// othersBits are the permissions of everyone except a file's owner.
const othersBits = 0o077

// newChange returns what makes the file that was found the one that is wanted. One
// that exists keeps its mode, owner and attributes.
func newChange(f state.File, found disk.Found) change {
	c := change{file: f, was: found, content: f.Content}
	switch {
	case f.Target != "":
		c.to, c.content = disk.Image{Kind: disk.Link, Target: f.Target}, nil
	case found.Kind == disk.File:
		c.to = found.Image
		c.to.Sum = disk.Sum(f.Content)
		if f.Mode != 0 && f.Mode&othersBits == 0 {
			c.to.Mode &^= othersBits
		}
	default:
		c.to = disk.New(f.Mode)
		c.to.Sum = disk.Sum(f.Content)
	}
	return c
}

// needed reports whether the change makes a difference: in what the file says, or in
// who may read it.
func (c *change) needed() bool {
	return !c.was.Same(c.to) || c.to.Kind == disk.File && c.was.Mode != c.to.Mode
}

// revertEntry returns the change that brings back what was before bootstrap.
func (e *Engine) revertEntry(entry *Entry, found disk.Found) (change, error) {
	content, err := e.kept(entry.Before)
	if err != nil {
		return change{}, fmt.Errorf("/%s can't be brought back: %w", entry.Path, err)
	}
	f := state.File{Part: entry.Part, Path: entry.Path, Why: entry.Why, Then: backward(entry.Then)}
	return change{file: f, back: true, over: over(entry.Then), was: found, to: entry.Before, content: content}, nil
}

func (c *change) action() string {
	if c.was.Kind == disk.Absent {
		return "create"
	}
	return "change"
}

func (c *change) diff() string {
	name := func(side string, i disk.Image) string {
		if i.Kind == disk.Absent {
			return "/dev/null"
		}
		return side + "/" + c.file.Path
	}
	return unified(name("a", c.was.Image), name("b", c.to), text(c.was.Image, c.was.Content), text(c.to, c.content))
}

// text is what a diff shows of an image.
func text(i disk.Image, content []byte) []byte {
	if i.Kind == disk.Link {
		return []byte("link to " + i.Target + "\n")
	}
	return content
}

// places are the directories in which bootstrap writes. /usr is the vendor's and often
// read-only; /efi and /oem are partitions of boot loaders; Kata is unpacked below /opt.
func places() []string { return []string{"etc", "boot", "efi", "oem", "opt", "var"} }

// obstacle says why a change must not be made, nil if it may.
func (e *Engine) obstacle(c *change) *state.Problem {
	p := &state.Problem{Part: c.file.Part, Fatal: true, Path: c.file.Path}
	top, _, _ := strings.Cut(c.file.Path, "/")
	link := c.to.Kind == disk.Link
	switch {
	case !slices.Contains(places(), top):
		p.Text, p.Fix = fmt.Sprintf("/%s is in none of the directories that bootstrap writes to", c.file.Path), "set that up where the image is made"
	case c.was.Kind == disk.Other:
		p.Text, p.Fix = fmt.Sprintf("/%s is no file", c.file.Path), "move it away"
	case c.was.Kind == disk.Link && c.to.Kind != disk.Absent && !c.movesLink():
		p.Text = fmt.Sprintf("/%s is a link to %s, and links are not written through", c.file.Path, c.was.Target)
		p.Fix = "put a file in its place, or set up by hand what it leads to"
	case link && c.was.Kind == disk.File:
		p.Text, p.Fix = fmt.Sprintf("/%s is a file where a link to %s is wanted", c.file.Path, c.to.Target), "move it away"
	case c.was.Kind == disk.File && bytes.Contains(c.was.Content, []byte("\r\n")) && path.Ext(c.file.Path) != ".toml": // TOML allows them
		p.Text, p.Fix = fmt.Sprintf("/%s has DOS line ends, which shells, boot loaders and systemd take for part of the text", c.file.Path), "convert it (sed -i 's/\\r$//'), and see who writes it so"
	default:
		err := e.Files.Writable(c.file.Path)
		if err == nil {
			return nil
		}
		p.Text, p.Fix = err.Error(), "make it writable"
	}
	return p
}

// movesLink reports whether a link becomes one to a file of the same name elsewhere: a
// unit of systemd's that a package has brought since, or that is enabled by the other
// name of its directory (/lib, /usr/lib).
func (c *change) movesLink() bool {
	return c.was.Kind == disk.Link && c.to.Kind == disk.Link && path.Base(c.was.Target) == path.Base(c.to.Target)
}

// stage does all of the change that can fail for want of room.
func (e *Engine) stage(c *change) (err error) {
	for _, dir := range c.dirs {
		if err := e.Files.MakeDir(dir, 0o755); err != nil {
			return err
		}
	}
	if c.to.Kind == disk.File {
		c.commit, c.discard, err = e.Files.Stage(c.file.Path, c.content, c.to)
	}
	return err
}

// unstage takes back what stage has done.
func (e *Engine) unstage(c *change) error {
	var errs []error
	if c.discard != nil {
		errs = append(errs, c.discard())
	}
	for _, dir := range slices.Backward(c.dirs) {
		errs = append(errs, e.Files.RemoveDir(dir))
	}
	return errors.Join(errs...)
}

// do makes the staged change and sees that it is made.
func (e *Engine) do(c *change) error {
	put := c.commit
	if put == nil {
		put = func() error { return e.put(c.file.Path, c.to, nil) }
	}
	c.commit, c.discard = nil, nil
	if err := put(); err != nil {
		return err
	}
	found, err := e.Files.Look(c.file.Path)
	if err == nil && !found.Same(c.to) {
		err = fmt.Errorf("/%s is not as it was written: somebody else writes it", c.file.Path)
	}
	return err
}

func (e *Engine) put(name string, to disk.Image, content []byte) error {
	switch to.Kind {
	case disk.File:
		return e.Files.Write(name, content, to)
	case disk.Link:
		return e.Files.Symlink(name, to.Target)
	case disk.Absent:
		return e.Files.Remove(name)
	case disk.Other:
	}
	return fmt.Errorf("/%s was neither a file nor a link, and can't be made again", name)
}

// undo brings back what was before the change, whether that was made or not.
func (e *Engine) undo(c *change) error {
	found, err := e.Files.Look(c.file.Path)
	if err == nil && !found.Identical(c.was.Image) {
		err = e.put(c.file.Path, c.was.Image, c.was.Content)
	}
	return errors.Join(err, e.unstage(c))
}

// pristine is the node as it would be without bootstrap. Parts read that, so that what they want does not depend
// on what they have already done: an argument that a blueprint no longer has is not found in a file that was
// edited for it, and our own files are never a conflict. A file that was changed since is shown as it is; a boot
// loader's without our arguments.
type pristine struct {
	state.Tree
	engine  *Engine
	journal *Journal
}

// ReadAtMost implements [state.Tree].
func (t *pristine) ReadAtMost(name string, limit int64) ([]byte, error) {
	entry, err := t.ours(name)
	if err != nil {
		return nil, err
	}
	if content, err := t.changed(name); content != nil || err != nil {
		return content[:min(int64(len(content)), limit)], err
	}
	if entry == nil || entry.Before.Kind == disk.Link {
		return t.Tree.ReadAtMost(name, limit)
	}
	if entry.Before.Kind == disk.Absent {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	content, err := t.engine.kept(entry.Before)
	return content[:min(int64(len(content)), limit)], err
}

// changed returns a boot loader's file that was changed since, without our arguments; nil for any other.
func (t *pristine) changed(name string) ([]byte, error) {
	entry := t.journal.entry(name)
	if entry == nil || entry.Part != boot.Part {
		return nil, nil
	}
	found, err := t.engine.Files.Look(name)
	if err != nil || found.Kind != disk.File || found.Same(entry.After) || boot.Marked(string(found.Content)) {
		return nil, err
	}
	return t.engine.withdrawn(entry, found)
}

// ReadLink returns where a link leads, for parts that ask whether a file is one.
func (t *pristine) ReadLink(name string) (string, error) {
	entry, err := t.ours(name)
	switch tree, ok := t.Tree.(interface{ ReadLink(string) (string, error) }); {
	case err != nil:
		return "", err
	case entry != nil && entry.Before.Kind == disk.Link:
		return entry.Before.Target, nil
	case entry != nil || !ok:
		return "", fmt.Errorf("read link %s: %w", name, fs.ErrInvalid)
	default:
		return tree.ReadLink(name)
	}
}

// ReadDir implements [state.Tree].
func (t *pristine) ReadDir(name string) ([]string, error) {
	names, err := t.Tree.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var failed error
	names = slices.DeleteFunc(slices.Clone(names), func(child string) bool {
		entry, err := t.ours(path.Join(name, child))
		if err != nil {
			failed = err
		}
		return entry != nil && entry.Before.Kind == disk.Absent
	})
	return names, failed
}

// ours returns the entry of a file that is as we made it, nil for another.
func (t *pristine) ours(name string) (*Entry, error) {
	entry := t.journal.entry(name)
	if entry == nil {
		return nil, nil
	}
	found, err := t.engine.Files.Look(name)
	if err != nil || !found.Same(entry.After) {
		return nil, err
	}
	return entry, nil
}

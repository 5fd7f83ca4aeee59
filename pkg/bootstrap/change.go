package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// change replaces one version of a file by another.
type change struct {
	file    state.File
	was     state.Found
	to      state.Image
	content []byte
	// back is true if the change restores the version before bootstrap.
	back bool
	// over are follow-ups that are no longer needed, because bootstrap's version of the file is taken back.
	over []state.FollowUp
	// dirs are the directories to create first, outermost first.
	dirs []string
	// commit and discard are set once a file is staged.
	commit, discard func() error
}

// newChange returns the change from the file that was found to the required one. An
// existing file keeps its mode, owner and attributes.
func newChange(f state.File, found state.Found) change {
	c := change{file: f, was: found, content: f.Content}
	switch {
	case f.Target != "":
		c.to, c.content = state.Image{Kind: state.Link, Target: f.Target}, nil
	case found.Kind == state.RegularFile:
		c.to = found.Image
		c.to.Sum = state.Sum(f.Content)
	default:
		c.to = state.NewImage(f.Mode)
		c.to.Sum = state.Sum(f.Content)
	}
	return c
}

// needed reports whether the change makes a difference.
func (c *change) needed() bool { return !c.was.Same(c.to) }

// revertEntry returns the change that restores the version before bootstrap.
func (e *Engine) revertEntry(entry *Entry, found state.Found) (change, error) {
	content, err := e.kept(entry.Before)
	if err != nil {
		return change{}, fmt.Errorf("restore /%s: %w", entry.Path, err)
	}
	to := entry.Before
	if e.sharesEnvironment(entry, found) {
		if content, err = e.withdrawn(entry, found); err != nil {
			return change{}, fmt.Errorf("restore /%s: %w", entry.Path, err)
		}
		to = found.Image
		to.Sum = state.Sum(content)
	}
	f := state.File{Part: entry.Part, Path: entry.Path, Why: entry.Why, Then: backward(entry.Then)}
	return change{file: f, back: true, over: over(entry.Then), was: found, to: to, content: content}, nil
}

// sharesEnvironment reports whether other programs wrote to GRUB's environment after bootstrap did. A revert then keeps their
// variables: the version before bootstrap may name a kernel in saved_entry that was removed since.
func (e *Engine) sharesEnvironment(entry *Entry, found state.Found) bool {
	return entry.Part == host.KernelPart && found.Kind == state.RegularFile && !found.Same(entry.After) && host.IsEnvironment(string(found.Content))
}

// withdrawnByOthers reports whether others removed bootstrap's arguments from GRUB's environment.
func (e *Engine) withdrawnByOthers(entry *Entry, found state.Found) bool {
	if !e.sharesEnvironment(entry, found) {
		return false
	}
	content, err := e.withdrawn(entry, found)
	return err == nil && string(content) == string(found.Content)
}

func (c *change) action() string {
	if c.was.Kind == state.Absent {
		return "create"
	}
	return "change"
}

func (c *change) diff() string {
	name := func(side string, i state.Image) string {
		if i.Kind == state.Absent {
			return "/dev/null"
		}
		return side + "/" + c.file.Path
	}
	return unified(name("found", c.was.Image), name("wanted", c.to), text(c.was.Image, c.was.Content), text(c.to, c.content))
}

// text returns the content of an image as a diff shows it.
func text(i state.Image, content []byte) []byte {
	if i.Kind == state.Link {
		return []byte("link to " + i.Target + "\n")
	}
	return content
}

// places are the directories in which bootstrap writes. /usr is the vendor's and often
// read-only; /efi and /oem are partitions of boot loaders; Kata is unpacked below /opt.
func places() []string { return []string{"etc", "boot", "efi", "oem", "opt", "var"} }

// obstacle returns the problem that prevents a change, or nil.
func (e *Engine) obstacle(c *change) *state.Problem {
	code, text, fix := c.refusal()
	if code == "" {
		err := e.Files.Writable(c.file.Path)
		if err == nil {
			return nil
		}
		code, text, fix = rule.FileNotWritable, err.Error(), "make it writable"
	}
	return &state.Problem{Part: c.file.Part, Code: code, Fatal: true, Path: c.file.Path, Text: text, Fix: fix}
}

// refusal returns the reason against a change, regardless of permissions. The code is empty if there is none.
func (c *change) refusal() (code rule.Code, text, fix string) {
	name := "/" + c.file.Path
	top, _, _ := strings.Cut(c.file.Path, "/")
	switch {
	case !slices.Contains(places(), top):
		return rule.FileNotWritable, name + " is in a directory that bootstrap does not write to", "write the file when you build the node's image"
	case c.was.Kind == state.Other:
		return rule.FileWrongType, name + " is not a regular file", "move it away"
	case c.was.Kind == state.Link && c.to.Kind != state.Absent && !c.movesLink():
		return rule.FileWrongType, fmt.Sprintf("%s is a link to %s, and bootstrap does not write through links", name, c.was.Target),
			"replace the link with a file, or configure its target yourself"
	case c.to.Kind == state.Link && c.was.Kind == state.RegularFile:
		return rule.FileWrongType, fmt.Sprintf("%s is a file, but must be a link to %s", name, c.to.Target), "move it away"
	case c.was.Kind == state.RegularFile && bytes.Contains(c.was.Content, []byte("\r\n")) && path.Ext(c.file.Path) != ".toml": // TOML allows them
		return rule.DOSLineEnds, name + " has DOS line ends, which shells, boot loaders and systemd read as part of the text",
			"convert it (sed -i 's/\\r$//'), and fix the program that writes them"
	}
	return "", "", ""
}

// movesLink reports whether the change only makes a link point to a file of the same name in another directory: to a systemd
// unit that a package installed later, or that was enabled by the other name of its directory (/lib, /usr/lib).
func (c *change) movesLink() bool {
	return c.was.Kind == state.Link && c.to.Kind == state.Link && path.Base(c.was.Target) == path.Base(c.to.Target)
}

// stage does everything that can fail because the disk is full.
func (e *Engine) stage(c *change) (err error) {
	for _, dir := range c.dirs {
		if err := e.Files.MakeDir(dir, 0o755); err != nil {
			return err
		}
	}
	if c.to.Kind == state.RegularFile {
		c.commit, c.discard, err = e.Files.Stage(c.file.Path, c.content, c.to)
	}
	return err
}

// unstage undoes stage.
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

// do makes the staged change and verifies it.
func (e *Engine) do(c *change) error {
	put := c.commit
	if put == nil {
		put = func() error { return e.put(c.file.Path, c.to, nil) }
	}
	// Once commit is called, the staged file may be gone, and undo must not discard it.
	c.commit, c.discard = nil, nil
	if err := put(); err != nil {
		return err
	}
	found, err := e.Files.Look(c.file.Path)
	if err == nil && !found.Same(c.to) {
		err = fmt.Errorf("/%s differs from what was written: another program changes it", c.file.Path)
	}
	return err
}

func (e *Engine) put(name string, to state.Image, content []byte) error {
	switch to.Kind {
	case state.RegularFile:
		return e.Files.Write(name, content, to)
	case state.Link:
		return e.Files.Symlink(name, to.Target)
	case state.Absent:
		return e.Files.Remove(name)
	case state.Other:
	}
	return fmt.Errorf("/%s was neither a file nor a link, and can't be restored", name)
}

// undo restores the version before the change, whether the change was made or not.
func (e *Engine) undo(c *change) error {
	found, err := e.Files.Look(c.file.Path)
	// Mode, owner and attributes count here, because a tool may have replaced the file by one with the same content.
	if err == nil && !found.Identical(c.was.Image) {
		err = e.put(c.file.Path, c.was.Image, c.was.Content)
	}
	return errors.Join(err, e.unstage(c))
}

// pristine is the node as it would be without bootstrap. Parts read it, so that their results do not depend on bootstrap's own
// changes. They do not find an argument that only a former blueprint had, although a file was edited for it, and bootstrap's
// own files are never a conflict. A file that was edited after apply is shown as it is, except that bootstrap's arguments are
// removed from boot loader files.
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
	if entry == nil || entry.Before.Kind == state.Link {
		return t.Tree.ReadAtMost(name, limit)
	}
	if entry.Before.Kind == state.Absent {
		return nil, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
	}
	content, err := t.engine.kept(entry.Before)
	return content[:min(int64(len(content)), limit)], err
}

// ReadAttribute implements [state.AttributeReader]. Bootstrap creates none of the attributes.
func (t *pristine) ReadAttribute(name string, limit int64) (data []byte, locked bool, err error) {
	return state.ReadAttribute(t.Tree, name, limit)
}

// changed returns an edited boot loader file without bootstrap's arguments, or nil for any other file.
func (t *pristine) changed(name string) ([]byte, error) {
	entry := t.journal.entry(name)
	if entry == nil || entry.Part != host.KernelPart {
		return nil, nil
	}
	found, err := t.engine.Files.Look(name)
	if err != nil || found.Kind != state.RegularFile || found.Same(entry.After) || host.Marked(string(found.Content)) {
		return nil, err
	}
	return t.engine.withdrawn(entry, found)
}

// ReadLink returns the target of a link, for parts that check whether a file is a link.
func (t *pristine) ReadLink(name string) (string, error) {
	entry, err := t.ours(name)
	switch tree, ok := t.Tree.(interface{ ReadLink(string) (string, error) }); {
	case err != nil:
		return "", err
	case entry != nil && entry.Before.Kind == state.Link:
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
		return entry != nil && entry.Before.Kind == state.Absent
	})
	return names, failed
}

// ours returns the entry of a file that is as bootstrap wrote it, or nil.
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

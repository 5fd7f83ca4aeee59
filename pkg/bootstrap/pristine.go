package bootstrap

import (
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/boot"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/disk"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// pristine is the node as it would be had bootstrap never been there. Parts read that:
// so what they want does not depend on what they have done already, an argument that a
// blueprint no longer has is not found in a file that was edited for it, and our own
// files are nobody's conflict. A file that somebody has changed since is shown as it is;
// a boot loader's without our arguments.
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

// changed returns a file of the boot loader's that somebody has changed since, without our arguments; nil for another.
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

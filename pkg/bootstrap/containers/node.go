package containers

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// node is the tree, optionally with the content of files replaced. Paths have a leading slash.
type node struct {
	tree state.Tree
	// would has the replaced content by path.
	would map[string]string
}

// with returns the node with one more file replaced.
func (n node) with(name string, content []byte) node {
	would := maps.Clone(n.would)
	if would == nil {
		would = map[string]string{}
	}
	would[name] = string(content)
	return node{n.tree, would}
}

// Read implements [facts.FileReader]. It truncates files after [facts.MaxTableSize] bytes, a size that no valid configuration has.
func (n node) Read(name string) facts.Fact { return n.readAtMost(name, facts.MaxTableSize) }

func (n node) readAtMost(name string, limit int64) facts.Fact {
	if content, ok := n.would[name]; ok {
		return facts.Fact{Path: name, How: "read", Value: content}
	}
	data, err := n.tree.ReadAtMost(below(n.target(name)), limit)
	return fact(name, string(data), err)
}

func fact(name, value string, err error) facts.Fact {
	f := facts.Fact{Path: name, How: "read", Value: value}
	switch {
	case err == nil:
		return f
	case errors.Is(err, fs.ErrNotExist):
		f.Status = facts.Absent
	case errors.Is(err, fs.ErrPermission):
		f.Status, f.Err = facts.Denied, err.Error()
	default:
		f.Status, f.Err = facts.Broken, err.Error()
	}
	return f
}

// linker is a tree that distinguishes links from files.
type linker interface {
	ReadLink(name string) (string, error)
}

// link returns the target of a link as it is written, and false if the file is not a link. A replaced file is never a link.
func (n node) link(name string) (string, bool) {
	if _, replaced := n.would["/"+below(name)]; replaced {
		return "", false
	}
	tree, ok := n.tree.(linker)
	if !ok {
		return "", false
	}
	target, err := tree.ReadLink(below(name))
	return target, err == nil && target != ""
}

// target returns the path with all links followed below the root, including absolute ones, which trees refuse to
// follow.
func (n node) target(name string) string {
	return "/" + facts.Follow(name, func(at string) string {
		target, _ := n.link(at)
		return target
	})
}

// exists reports whether a file or directory exists.
func (n node) exists(name string) bool {
	// One byte shows that there is a file. A read of a directory fails.
	if n.readAtMost(name, 1).OK() {
		return true
	}
	_, err := n.tree.ReadDir(below(n.target(name)))
	return err == nil
}

// list returns the names in a directory, sorted. all is false if the directory can't be read.
func (n node) list(dir string) (names []string, all bool) {
	names, err := n.tree.ReadDir(cmp.Or(below(n.target(dir)), "."))
	all = err == nil || errors.Is(err, fs.ErrNotExist)
	for name := range n.would {
		if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			names = append(names, first)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), all
}

// Names lists a directory for package facts.
func (n node) Names(dir string) ([]string, facts.Fact) {
	names, _ := n.list(dir)
	_, err := n.tree.ReadDir(cmp.Or(below(n.target(dir)), "."))
	if len(names) > 0 && errors.Is(err, fs.ErrNotExist) {
		err = nil // files that would exist
	}
	return names, fact(dir, "", err)
}

// IsLink reports for package facts whether a path is a link.
func (n node) IsLink(name string) bool {
	_, ok := n.link(name)
	return ok
}

// Real returns the target of a path for package facts, with links followed.
func (n node) Real(name string) string { return below(n.target(name)) }

// Match implements [facts.FileReader].
func (n node) Match(pattern string) (found []string, all bool) {
	found, all = []string{""}, true
	for element := range strings.SplitSeq(below(path.Clean(pattern)), "/") {
		var next []string
		for _, dir := range found {
			names, listed := n.list("/" + dir)
			all = all && listed
			for _, name := range names {
				if ok, err := path.Match(element, name); ok && err == nil {
					next = append(next, path.Join(dir, name))
				}
			}
		}
		if len(next) > facts.MaxTableFiles {
			return next[:facts.MaxTableFiles], false
		}
		found = next
	}
	return found, all
}

package archive

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// answers has the node's answers that the copied files alone can't give. It implements [sysfs.Copy], and does not change once it is complete.
type answers struct {
	links    map[string]string
	lists    map[string][]string
	failures map[look]error
	// content are the files whose content was copied. there are all files that existed.
	content, there map[string]bool
}

// look is one kind of access to a file.
type look struct {
	path string
	op   sysfs.Op
}

func newAnswers(m *Manifest) (*answers, error) {
	a := &answers{
		links: map[string]string{}, lists: m.Lists, failures: map[look]error{},
		content: map[string]bool{}, there: map[string]bool{".": true},
	}
	for i := range m.Failures {
		f := &m.Failures[i]
		op := slices.Index(opNames(), f.Op)
		if op < 0 {
			return nil, fmt.Errorf("the manifest has an access %q to %s, which this version does not know", f.Op, f.Path)
		}
		a.failures[look{f.Path, sysfs.Op(op)}] = f.err()
	}
	for dir, names := range m.Lists {
		if !slices.IsSorted(names) {
			return nil, fmt.Errorf("the manifest's list of %.128q is out of order", dir)
		}
		a.add(dir)
	}
	return a, nil
}

// add adds an existing file, and the directories above it.
func (a *answers) add(name string) {
	for ; name != "." && name != "/" && !a.there[name]; name = path.Dir(name) {
		a.there[name] = true
	}
}

func (a *answers) linkAt(place string) (string, bool) {
	target, ok := a.links[place]
	return target, ok
}

// Answer implements [sysfs.Copy].
func (a *answers) Answer(op sysfs.Op, name string) error {
	place := walk(name, op != sysfs.OpLink, a.linkAt)
	if err := a.failures[look{place, op}]; err != nil {
		return err
	}
	if !a.there[place] {
		return a.missing(place)
	}
	if op == sysfs.OpRead && !a.content[place] {
		if err := a.failures[look{place, sysfs.OpOpen}]; err != nil {
			return err
		}
		return ErrNotCollected
	}
	return nil
}

// Names implements [sysfs.Copy].
func (a *answers) Names(name string) ([]string, error) {
	place := walk(name, true, a.linkAt)
	if names, ok := a.lists[place]; ok {
		return slices.Clone(names), nil
	}
	if err := a.failures[look{place, sysfs.OpList}]; err != nil {
		return nil, err
	}
	if !a.there[place] {
		return nil, a.missing(place)
	}
	return nil, ErrNotCollected
}

// missing returns the error for a place that is not in the copy. The node had no such file if a part of the path above it was
// absent or not a directory, or if its directory was listed without it.
func (a *answers) missing(place string) error {
	for at := place; ; at = path.Dir(at) {
		for op := range opNames() {
			if err := a.failures[look{at, sysfs.Op(op)}]; err != nil {
				return err
			}
		}
		dir, name := path.Dir(at), path.Base(at)
		if names, ok := a.lists[dir]; ok {
			if _, found := slices.BinarySearch(names, name); !found {
				return syscall.ENOENT
			}
		}
		if dir == "." || dir == "/" || a.there[dir] {
			return ErrNotCollected
		}
	}
}

// inside reports whether a path of an archive may be used: it is relative and clean, and its length and depth are limited.
func inside(name string) bool {
	return name != "" && len(name) <= maxPath && strings.Count(name, "/") < maxDepth &&
		path.Clean(name) == name && !path.IsAbs(name) && name != ".." && !strings.HasPrefix(name, "../") &&
		!strings.ContainsRune(name, 0)
}

// maxLinks is the largest number of links that are followed for a path, as in the kernel (path_resolution(7)).
const maxLinks = 40

// walk returns the target of a path. link returns the target of a link. The last element of the path is followed only if follow is
// set. A link that is absolute or leaves the root is not followed: [os.Root] refuses it as well.
func walk(name string, follow bool, link func(string) (target string, ok bool)) string {
	at, rest := "", elements(name)
	for links := 0; len(rest) > 0; {
		element := rest[0]
		rest = rest[1:]
		if element == ".." {
			at = parent(at)
			continue
		}
		next := path.Join(at, element)
		if len(rest) == 0 && !follow {
			return next
		}
		target, ok := link(next)
		if !ok || path.IsAbs(target) || links == maxLinks {
			at = next
			continue
		}
		links++
		rest = append(elements(target), rest...)
	}
	if at == "" {
		return "."
	}
	return at
}

// elements splits a path without cleaning it, because the meaning of ".." depends
// on the links before it.
func elements(name string) []string {
	parts := strings.Split(name, "/")
	kept := parts[:0]
	for _, p := range parts {
		if p != "" && p != "." {
			kept = append(kept, p)
		}
	}
	return kept
}

func parent(name string) string {
	dir := path.Dir(name)
	if dir == "." || dir == "/" {
		return ""
	}
	return dir
}

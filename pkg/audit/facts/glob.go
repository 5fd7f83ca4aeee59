package facts

import (
	"path"
	"strings"
)

// maxMatches bounds what a pattern may match: a drop-in directory has a handful.
const maxMatches = 256

// Match returns the paths of the node that match a pattern of [path.Match], in
// any of their elements, sorted as filepath.Glob sorts: at most 256, and whether
// these are all.
func (n *Node) Match(pattern string) (names []string, all bool) {
	found := []string{""}
	for _, element := range split(pattern) {
		var next []string
		for _, dir := range found {
			next = append(next, n.matchIn(dir, element)...)
			if len(next) > maxMatches {
				return next[:maxMatches], false
			}
		}
		found = next
	}
	return found, true
}

func (n *Node) matchIn(dir, element string) []string {
	if !strings.ContainsAny(element, `*?[\`) {
		name := path.Join(dir, element)
		if _, err := n.fs.Stat(n.Real(name)); err != nil {
			return nil
		}
		return []string{name}
	}
	names, _ := n.List(n.listable(dir))
	var found []string
	for _, name := range names {
		if ok, err := path.Match(element, name); err == nil && ok {
			found = append(found, path.Join(dir, name))
		}
	}
	return found
}

func (n *Node) listable(dir string) string {
	if dir == "" {
		return "."
	}
	return n.Real(dir)
}

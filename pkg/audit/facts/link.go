package facts

import (
	"path"
	"strings"
)

// maxLinks is how many links a path may go through, as in the kernel (path_resolution(7)).
const maxLinks = 40

// Real returns where a path leads to once all links are followed: see [Follow]. What
// is not there, or not to be read, stays as it is.
func (n *Node) Real(name string) string { return Follow(name, n.link) }

// Follow returns where a path leads to once all links are followed, as seen on the
// node: an absolute link ("/var/run" to "/run") starts again at the node's root, and
// none leaves it. Link says what a link says, empty for what is none. Neither paths
// that it is given nor the one that is returned have a leading slash.
func Follow(name string, link func(name string) string) string {
	done, rest, links := "", split(name), 0
	for len(rest) > 0 {
		next := path.Join(done, rest[0])
		rest = rest[1:]
		target := link(next)
		if target == "" || links == maxLinks {
			done = next
			continue
		}
		links++
		if path.IsAbs(target) {
			done = ""
		}
		// Joined with a slash in front, ".." can't climb above the root.
		joined := path.Join("/", done, target)
		done, rest = "", append(split(joined), rest...)
	}
	return done
}

// Link returns what a link says, as it is written. It is for those that lead to no
// file, such as the namespaces of a process.
func (n *Node) Link(name string) Fact {
	name = strings.TrimPrefix(path.Clean(name), "/")
	target, err := n.fs.ReadLink(name)
	return fact(name, target, "link", err)
}

// link returns what a link says, empty for what is none, and asks once: paths that
// are looked at have most of their directories in common.
func (n *Node) link(name string) string {
	if target, ok := n.real.Load(name); ok {
		return target.(string)
	}
	target, err := n.fs.ReadLink(name)
	if err != nil {
		target = ""
	}
	n.real.Store(name, target)
	return target
}

func split(name string) []string {
	return strings.FieldsFunc(path.Clean("/"+name), func(r rune) bool { return r == '/' })
}

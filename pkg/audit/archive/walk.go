package archive

import (
	"path"
	"strings"
)

// maxLinks is how many links a path may go through, as in the kernel
// (path_resolution(7)).
const maxLinks = 40

// walk returns where a path leads, by the links that link knows; the last element
// is followed too if follow. A link that is absolute or climbs out of the root is
// not followed: [os.Root] refuses it as well.
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

// elements splits a path without cleaning it: what ".." means depends on the
// links before it.
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

package facts

import (
	"path"
)

// dirReader reads directories. Paths are as on the node.
type dirReader interface {
	// Names returns the names in a directory, sorted. The fact is OK only for a directory that could be read.
	Names(dir string) ([]string, Fact)
	// IsLink reports whether a path is a link itself.
	IsLink(name string) bool
	// Real returns a path with all links followed, without its leading slash.
	Real(name string) string
}

// maxDepth limits the depth of directories with drop-ins.
const maxDepth = 8

// walkTree returns the files below a directory in the order of filepath.Walk, which loaders of drop-ins use. It does not follow
// links: a link to a directory counts as a file.
func walkTree(dirs dirReader, dir string) []string { return walk(dirs, dir, 0) }

func walk(dirs dirReader, dir string, depth int) []string {
	names, _ := dirs.Names(dir)
	var files []string
	for _, name := range names {
		file := path.Join(dir, name)
		// The kubelet and CRI-O walk the directory by Go's filepath package, which follows no link.
		if depth < maxDepth && !dirs.IsLink(file) {
			if _, sub := dirs.Names(file); sub.OK() {
				files = append(files, walk(dirs, file, depth+1)...)
				continue
			}
		}
		files = append(files, file)
	}
	return files
}

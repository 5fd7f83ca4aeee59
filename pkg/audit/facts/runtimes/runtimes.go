package runtimes

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

// Runtimes is what the node's container runtimes are set up to do.
type Runtimes struct {
	// Handlers are what a RuntimeClass can name, by name.
	Handlers []Handler
	// CDIDirs are where CDI specs are looked for.
	CDIDirs []string
	// NRI is nil where there is no container runtime.
	NRI *NRI
	// ShimCleanup is containerd's limit for ending a VM whose shim was killed.
	ShimCleanup Setting
	// Files are those that were read, in the order in which they count.
	Files []facts.Fact
	// Damaged are files that were not to be had or not to be understood: anything
	// may be in them, and the runtime itself would not start with them.
	Damaged []facts.Fact
}

// Of returns the node's runtimes. It is worked out once.
func Of(n *facts.Node) *Runtimes {
	type key struct{}
	return facts.Memo(n, key{}, func() *Runtimes {
		r := &Runtimes{}
		r.addContainerd(n)
		r.addCRIO(n)
		return r
	})
}

// Found reports whether the node has a container runtime that is set up.
func (r *Runtimes) Found() bool { return len(r.Files)+len(r.Damaged) > 0 }

// Kata returns the handlers that are Kata's.
func (r *Runtimes) Kata() []Handler {
	var kata []Handler
	for _, h := range r.Handlers {
		if h.IsKata() {
			kata = append(kata, h)
		}
	}
	return kata
}

// damaged keeps a file that does not help.
func (r *Runtimes) damaged(file facts.Fact, err error) {
	if err != nil {
		file.Status, file.Err = facts.Broken, err.Error()
	}
	r.Damaged = append(r.Damaged, file)
}

// Setting is one setting as all files together have it.
type Setting = config.Setting

// onNode reads a node's files, through absolute links too.
type onNode struct{ *facts.Node }

// Read implements [config.Files].
func (n onNode) Read(name string) facts.Fact { return read(n.Node, name) }

// Names implements [config.Dirs].
func (n onNode) Names(dir string) ([]string, facts.Fact) { return n.List(n.Real(dir)) }

// IsLink implements [config.Dirs].
func (n onNode) IsLink(name string) bool {
	return n.Real(name) != path.Join(n.Real(path.Dir(name)), path.Base(name))
}

// read reads a file of the node, through absolute links too.
func read(n *facts.Node, name string) facts.Fact {
	f := n.Read(n.Real(name))
	f.Path = "/" + strings.TrimPrefix(name, "/")
	return f
}

// addCDIDirs adds the directories of a setting, or the default ones of both engines.
func (r *Runtimes) addCDIDirs(s Setting) {
	dirs := s.List()
	if !s.IsSet() {
		dirs = []string{"/etc/cdi", "/var/run/cdi"}
	}
	for _, dir := range dirs {
		if !slices.Contains(r.CDIDirs, dir) {
			r.CDIDirs = append(r.CDIDirs, dir)
		}
	}
}

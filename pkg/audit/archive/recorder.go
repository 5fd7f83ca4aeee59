package archive

import (
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Recorder records the reads through a file system. It is safe for concurrent use.
type Recorder struct {
	node *sysfs.FS // untapped

	mu      sync.Mutex // guards the fields below
	entries map[string]*entry
	dirs    map[string]string          // directories by the names that were asked for, and their places once links are followed
	links   map[string]map[string]bool // the links in directories
	plain   map[string]bool            // places that are not links, in other directories
	// text is the function by which [Recorder.Rewrite] rewrote texts.
	text func(string) string
}

// entry is the recorded state of one file.
type entry struct {
	data       []byte
	read       bool
	target     string
	link       bool
	names      []string
	listed     bool
	opened     bool
	failed     map[sysfs.Op]error
	content    bool // made by the collector
	attributes *attributes
}

// attributes are a file's type, mode and owner.
type attributes struct {
	dir            bool
	mode, uid, gid uint32
}

func newAttributes(mode, uid, gid uint32) *attributes {
	return &attributes{mode&syscall.S_IFMT == syscall.S_IFDIR, mode & 0o777, uid, gid}
}

// Record returns a file system that reads like node, and the recorder that keeps these reads.
func Record(node *sysfs.FS) (*sysfs.FS, *Recorder) {
	r := &Recorder{node: node, entries: map[string]*entry{}, dirs: map[string]string{}, links: map[string]map[string]bool{}, plain: map[string]bool{}, text: func(s string) string { return s }}
	return node.WithTap(r.saw), r
}

// Put adds a file that the node does not have, with answers of the kernel or of a program. It does not replace a file of
// the node.
func (r *Recorder) Put(name string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(name)
	if e.read {
		return
	}
	*e = entry{data: data, read: true, content: true}
}

// Rewrite replaces every content by the result of f for its place. For names, targets of links and lists, it calls f with an empty
// place. It removes the files for which drop returns true. Call it after all reads, right before [Recorder.Write].
func (r *Recorder) Rewrite(f func(place string, data []byte) []byte, drop func(place string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := func(s string) string { return string(f("", []byte(s))) }
	r.text = text
	renamed := make(map[string]*entry, len(r.entries))
	for place, e := range r.entries {
		if drop(place) {
			continue
		}
		e.target = text(e.target)
		if e.read {
			e.data = f(place, e.data)
		}
		for i := range e.names {
			e.names[i] = text(e.names[i])
		}
		slices.Sort(e.names)
		renamed[text(place)] = e
	}
	r.entries = renamed
}

// Contents returns the contents of the files whose names match, by name. The slices
// are the recorder's own: don't change them.
func (r *Recorder) Contents(match func(place string) bool) map[string][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string][]byte{}
	for place, e := range r.entries {
		if e.read && match(place) {
			found[place] = e.data
		}
	}
	return found
}

// Each calls f for each file with a link's target, a directory's names, or the content. They belong to the recorder:
// don't change or keep them.
func (r *Recorder) Each(f func(place, target string, names []string, data []byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for place, e := range r.entries {
		f(place, e.target, e.names, e.data)
	}
}

// saw records an access, except for the content of the ledger, which may be large: [Recorder.Ledger] copies it.
func (r *Recorder) saw(a sysfs.Access) {
	if a.Op == sysfs.OpRead && a.Err == nil && path.Dir(a.Path) == ledger.DefaultDir && isHistory(path.Base(a.Path)) {
		return
	}
	place := r.place(a.Path, a.Op != sysfs.OpLink)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(place)
	if a.Err != nil {
		e.fail(a)
		return
	}
	e.keep(a)
}

func (e *entry) fail(a sysfs.Access) {
	if errors.Is(a.Err, syscall.EINVAL) && a.Op == sysfs.OpLink { // it exists, and is not a link
		e.opened = true
		return
	}
	if e.failed == nil {
		e.failed = map[sysfs.Op]error{}
	}
	e.failed[a.Op] = a.Err
}

func (e *entry) keep(a sysfs.Access) {
	switch a.Op {
	case sysfs.OpOpen:
		e.opened = true
	case sysfs.OpRead:
		// Some readers read only the beginning of a file. The longest content serves all of them.
		if !e.read || len(a.Data) > len(e.data) {
			e.data = slices.Clone(a.Data)
		}
		e.read = true
	case sysfs.OpList:
		e.names, e.listed = slices.Clone(a.Names), true
	case sysfs.OpLink:
		e.target, e.link = string(a.Data), true
	case sysfs.OpStat:
		e.opened = true
		if info, ok := a.Info.Sys().(*syscall.Stat_t); ok {
			e.attributes = newAttributes(info.Mode, info.Uid, info.Gid)
		}
	}
}

// entry returns the entry of a place, and creates a missing one. Callers hold mu.
func (r *Recorder) entry(place string) *entry {
	e := r.entries[place]
	if e == nil {
		e = &entry{}
		r.entries[place] = e
	}
	return e
}

// place resolves a path, and records its links. It holds mu for look-ups only, so that goroutines don't wait for the
// kernel's answers to others.
func (r *Recorder) place(name string, follow bool) string {
	dir, last := path.Split(path.Clean(name))
	if dir == "" || last == ".." {
		return walk(name, follow, r.linkAt)
	}
	r.mu.Lock()
	where, ok := r.dirs[dir]
	r.mu.Unlock()
	if !ok {
		where = walk(dir, true, r.linkAt)
		r.mu.Lock()
		r.dirs[dir] = where
		r.mu.Unlock()
	}
	place := path.Join(where, last)
	if !follow {
		return place
	}
	if _, link := r.linkAt(place); !link {
		return place
	}
	return walk(place, true, r.linkAt)
}

// linkAt returns the target of the link at a place whose parents are not links.
func (r *Recorder) linkAt(place string) (string, bool) {
	if target, link, known := r.knownLink(place); known {
		return target, link
	}
	target, err := r.node.ReadLink(place)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.plain[place] = true
		return "", false
	}
	e := r.entry(place)
	e.target, e.link = target, true
	return target, true
}

// knownLink reports whether a place is a link, if that is known without asking the node for it.
func (r *Recorder) knownLink(place string) (target string, link, known bool) {
	dir, name := path.Split(place)
	r.mu.Lock()
	if e := r.entries[place]; e != nil && e.link {
		target, link = e.target, true
	}
	plain := r.plain[place]
	links, listed := r.links[dir]
	r.mu.Unlock()
	switch {
	case link || plain:
		return target, link, true
	case !listed && strings.HasPrefix(dir, "sys/"):
		links = r.listLinks(dir)
	}
	return "", false, links != nil && !links[name]
}

// listLinks asks the node for all links of a directory at once, because in /sys most names of a directory are needed.
func (r *Recorder) listLinks(dir string) map[string]bool {
	links, err := r.node.Links(dir)
	if err != nil {
		links = nil // each name is asked for
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links[dir] = links
	return links
}

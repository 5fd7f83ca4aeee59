package archive

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Recorder keeps what is read through a file system. Safe for concurrent use.
type Recorder struct {
	node *sysfs.FS // untapped

	mu      sync.Mutex // guards those below
	entries map[string]*entry
	dirs    map[string]string // directories as they were asked for, and where they are
	plain   map[string]bool   // places that are no links
	// text is what [Recorder.Rewrite] does with a text.
	text func(string) string
}

// entry is what is known of one file.
type entry struct {
	data    []byte
	read    bool
	target  string
	link    bool
	names   []string
	listed  bool
	opened  bool
	info    fs.FileInfo
	failed  map[sysfs.Op]error
	content bool // made by the collector
}

// Record returns a file system like node whose reads are kept.
func Record(node *sysfs.FS) (*sysfs.FS, *Recorder) {
	r := &Recorder{node: node, entries: map[string]*entry{}, dirs: map[string]string{}, plain: map[string]bool{}, text: func(s string) string { return s }}
	return node.WithTap(r.saw), r
}

// Put adds a file that is none of the node's: what it says was asked of the
// kernel. One that the node's tree has stays.
func (r *Recorder) Put(name string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(name)
	if e.read {
		return
	}
	*e = entry{data: data, read: true, content: true}
}

// Rewrite has every content pass through f with its name, and every name, link and
// list without one, and leaves out the files that drop names. It is called last
// before [Recorder.Write].
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

// Each calls f for every file with what is known of it: the text of a link, the names in a
// directory, the content. They are the recorder's own: don't change or keep them.
func (r *Recorder) Each(f func(place, target string, names []string, data []byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for place, e := range r.entries {
		f(place, e.target, e.names, e.data)
	}
}

// saw keeps an access, but not a ledger's content, which may be large: that is for
// [Recorder.Ledger].
func (r *Recorder) saw(a sysfs.Access) {
	if a.Op == sysfs.OpRead && a.Err == nil && path.Dir(a.Path) == ledger.DefaultDir && isHistory(path.Base(a.Path)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(r.place(a.Path, a.Op != sysfs.OpLink))
	if a.Err != nil {
		if errors.Is(a.Err, syscall.EINVAL) && a.Op == sysfs.OpLink { // it is there, and no link
			e.opened = true
			return
		}
		if e.failed == nil {
			e.failed = map[sysfs.Op]error{}
		}
		e.failed[a.Op] = a.Err
		return
	}
	e.keep(a)
}

func (e *entry) keep(a sysfs.Access) {
	switch a.Op {
	case sysfs.OpOpen:
		e.opened = true
	case sysfs.OpRead:
		if !e.read || len(a.Data) > len(e.data) {
			e.data = slices.Clone(a.Data)
		}
		e.read = true
	case sysfs.OpList:
		e.names, e.listed = slices.Clone(a.Names), true
	case sysfs.OpLink:
		e.target, e.link = string(a.Data), true
	case sysfs.OpStat:
		e.info, e.opened = a.Info, true
	}
}

// entry returns what is known of a place. Callers hold mu.
func (r *Recorder) entry(place string) *entry {
	e := r.entries[place]
	if e == nil {
		e = &entry{}
		r.entries[place] = e
	}
	return e
}

// place returns where a path leads to; the links on the way are kept. Callers
// hold mu.
func (r *Recorder) place(name string, follow bool) string {
	dir, last := path.Split(path.Clean(name))
	if dir == "" || last == ".." {
		return walk(name, follow, r.linkAt)
	}
	where, ok := r.dirs[dir]
	if !ok {
		where = walk(dir, true, r.linkAt)
		r.dirs[dir] = where
	}
	return walk(path.Join(where, last), follow, r.linkAt)
}

// linkAt returns the text of the link at a place whose parents are no links.
func (r *Recorder) linkAt(place string) (string, bool) {
	if e := r.entries[place]; e != nil && e.link {
		return e.target, true
	}
	if r.plain[place] {
		return "", false
	}
	target, err := r.node.ReadLink(place)
	if err != nil {
		r.plain[place] = true
		return "", false
	}
	e := r.entry(place)
	e.target, e.link = target, true
	return target, true
}

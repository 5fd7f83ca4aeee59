package facts

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// StatFile is where a copy of a node keeps the owners and modes of its files, which the copy itself does not have: a JSON object of
// absolute paths and their [Stat]. A path in it counts as existing even if the copy has no such file (sockets, devices).
const StatFile = "kata-vfio/stat.json"

// Stat is the owner, the group and the mode of a file.
type Stat struct {
	// Mode is st_mode of stat(2), its type included, in octal: "100644".
	Mode string `json:"mode"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
}

// ModeBits returns the mode as a number; 0 if it is not octal.
func (s *Stat) ModeBits() uint32 {
	bits, _ := strconv.ParseUint(s.Mode, 8, 32)
	return uint32(bits)
}

// IsSocket reports whether the file is a unix socket.
func (s *Stat) IsSocket() bool { return s.ModeBits()&syscall.S_IFMT == syscall.S_IFSOCK }

// Writers says who besides root may change the file; empty if nobody may. In a directory with the sticky bit, others may create
// files, but not replace root's files, so their permission to write does not count.
func (s *Stat) Writers() string {
	bits := s.ModeBits()
	sticky := bits&syscall.S_IFMT == syscall.S_IFDIR && bits&syscall.S_ISVTX != 0
	switch {
	// The owner can change the mode at any time, so the bits don't matter.
	case s.UID != 0:
		return fmt.Sprintf("user %d owns it", s.UID)
	case bits&0o002 != 0 && !sticky:
		return "everybody may write to it"
	case bits&0o020 != 0 && s.GID != 0 && !sticky:
		return fmt.Sprintf("group %d may write to it", s.GID)
	}
	return ""
}

// Openers says who besides root may open the file, be it only to read; empty if nobody may. Use it for device nodes, whose drivers
// accept all their requests from a process that has them open.
func (s *Stat) Openers() string {
	bits := s.ModeBits()
	switch {
	// The owner can change the mode at any time, so the bits don't matter.
	case s.UID != 0:
		return fmt.Sprintf("user %d owns it", s.UID)
	case bits&0o006 != 0:
		return "everybody may open it"
	case bits&0o060 != 0 && s.GID != 0:
		return fmt.Sprintf("group %d may open it", s.GID)
	}
	return ""
}

// Stat returns the owner and mode of a file of the node. It follows links. The fact is Broken if a copy does not record the owner
// of the file.
func (n *Node) Stat(name string) (Stat, Fact) {
	name = n.Real(name)
	s, f := n.stat(name)
	if f.OK() {
		n.stats.Store(f.Path, s)
	}
	return s, f
}

// IsSocket reports whether a file of the node is a unix socket. Unlike [Node.Stat], it needs no owner of a file that is a socket in
// the copy, too, as those are that bootstrap's changes would make. If the fact is not OK, the answer is unknown.
func (n *Node) IsSocket(name string) (bool, Fact) {
	s, f := n.Stat(name)
	if f.Status != Broken {
		return s.IsSocket(), f
	}
	at := n.Real(name)
	if info, err := n.fs.Stat(at); err == nil && info.Mode().Type() == fs.ModeSocket {
		return true, fact(at, "socket", "stat", nil)
	}
	return false, f
}

// Stats returns all results of [Node.Stat] so far, by path. A copy of the node keeps them in [StatFile].
func (n *Node) Stats() map[string]Stat {
	all := map[string]Stat{}
	n.stats.Range(func(name, s any) bool {
		all[name.(string)] = s.(Stat)
		return true
	})
	return all
}

func (n *Node) stat(name string) (Stat, Fact) {
	if kept, ok := n.kept(); ok {
		s, ok := kept["/"+name]
		if _, err := n.fs.Stat(name); !ok && err == nil {
			return Stat{}, Fact{Path: "/" + name, How: "stat", Status: Broken, Err: "the copy does not record its owner"}
		}
		switch {
		case !ok:
			return Stat{}, fact(name, "", "stat", fs.ErrNotExist)
		case s.ModeBits() == 0:
			return Stat{}, Fact{Path: "/" + name, How: "stat", Status: Broken, Err: "the copy has no mode for it"}
		}
		return s, s.fact(name)
	}
	info, err := n.fs.Stat(name)
	if err != nil {
		return Stat{}, fact(name, "", "stat", err)
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !n.ownersAreReal() {
		return Stat{}, Fact{Path: "/" + name, How: "stat", Status: Broken, Err: "this is a copy without the file's owner"}
	}
	s := Stat{Mode: fmt.Sprintf("%o", sys.Mode), UID: sys.Uid, GID: sys.Gid}
	return s, s.fact(name)
}

func (s *Stat) fact(name string) Fact {
	return Fact{Path: "/" + name, Value: fmt.Sprintf("mode %s, uid %d, gid %d", s.Mode, s.UID, s.GID), How: "stat"}
}

// kept returns the content of StatFile; false if there is no such file.
func (n *Node) kept() (map[string]Stat, bool) {
	type key struct{}
	kept := Memo(n, key{}, func() map[string]Stat {
		file := n.Read(StatFile)
		if !file.OK() {
			return nil
		}
		all := map[string]Stat{}
		if json.Unmarshal([]byte(file.Value), &all) != nil {
			return map[string]Stat{} // a damaged file says nothing about any path
		}
		return all
	})
	return kept, kept != nil
}

// ownersAreReal reports whether files have the owners that they have on the node. A node's root directory belongs
// to root; that of an unpacked copy belongs to the person who unpacked it.
func (n *Node) ownersAreReal() bool {
	info, err := n.fs.Stat(".")
	if err != nil {
		return false
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == 0
}

// Parents returns a file's path, with links followed, and the paths of the directories above it, except the root.
func (n *Node) Parents(name string) []string {
	var all []string
	for dir := n.Real(name); dir != "." && dir != ""; dir = path.Dir(dir) {
		all = append(all, dir)
		if !strings.Contains(dir, "/") {
			break
		}
	}
	return all
}

// maxMatches limits the paths that a pattern may match. A drop-in directory has only a few files.
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

// maxLinks is how many links a path may go through, as in the kernel (path_resolution(7)).
const maxLinks = 40

// Real returns where a path leads to once all links are followed: see [Follow]. An element that does not exist or can't be read
// stays as it is.
func (n *Node) Real(name string) string { return Follow(name, n.link) }

// Follow returns where a path leads to once all links are followed, as seen on the node: an absolute link ("/var/run" to "/run")
// starts again at the node's root, and no link leads out of it. The function link returns the target of a link, or "" for a path
// that is not a link. The paths that link gets, and the path that Follow returns, have no leading slash.
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

// FollowIn is [Follow] in a tree of files. In a tree that can't read links, such as an archive without them, the path stays as it is.
func FollowIn(tree any, name string) string {
	links, ok := tree.(interface{ ReadLink(string) (string, error) })
	if !ok {
		return name
	}
	return Follow(name, func(at string) string {
		target, err := links.ReadLink(at)
		if err != nil {
			return "" // it is not a link, or not there
		}
		return target
	})
}

// Link returns the target of a link, as it is written. Use it for links that lead to no file, such as the
// namespaces of a process.
func (n *Node) Link(name string) Fact {
	name = strings.TrimPrefix(path.Clean(name), "/")
	target, err := n.fs.ReadLink(name)
	return fact(name, target, "link", err)
}

// link returns the target of a link, or "" for a path that is not a link. It reads each path once, because most paths share their directories.
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

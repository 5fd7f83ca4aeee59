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

// StatFile is where a copy of a node keeps the owners and modes of its files,
// which the copy itself does not have: a JSON object of absolute paths and their
// [Stat]. What it names counts as there, also where the copy has no such file
// (sockets, devices).
const StatFile = "kata-vfio/stat.json"

// Stat is who owns a file and who may do what with it.
type Stat struct {
	// Mode is st_mode of stat(2), its type included, in octal: "100644".
	Mode string `json:"mode"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
}

// ModeBits returns the mode as a number; 0 where it is no octal one.
func (s *Stat) ModeBits() uint32 {
	bits, _ := strconv.ParseUint(s.Mode, 8, 32)
	return uint32(bits)
}

// IsSocket reports whether the file is a unix socket.
func (s *Stat) IsSocket() bool { return s.ModeBits()&syscall.S_IFMT == syscall.S_IFSOCK }

// Writers says who but root may change the file: empty for nobody. A directory
// with the sticky bit lets others make files, not replace those of root.
func (s *Stat) Writers() string {
	bits := s.ModeBits()
	sticky := bits&syscall.S_IFMT == syscall.S_IFDIR && bits&syscall.S_ISVTX != 0
	switch {
	case s.UID != 0:
		return fmt.Sprintf("user %d owns it", s.UID)
	case bits&0o002 != 0 && !sticky:
		return "everybody may write to it"
	case bits&0o020 != 0 && s.GID != 0 && !sticky:
		return fmt.Sprintf("group %d may write to it", s.GID)
	}
	return ""
}

// Stat returns owner and mode of a file of the node, once links are followed. Its
// fact is Broken where a copy does not say who owned the file on the node.
func (n *Node) Stat(name string) (Stat, Fact) {
	name = n.Real(name)
	s, f := n.stat(name)
	if f.OK() {
		n.stats.Store(f.Path, s)
	}
	return s, f
}

// Stats returns the owners and modes that were asked for, by path: what a copy of
// the node keeps in [StatFile].
func (n *Node) Stats() map[string]Stat {
	all := map[string]Stat{}
	n.stats.Range(func(path, s any) bool {
		all[path.(string)] = s.(Stat)
		return true
	})
	return all
}

func (n *Node) stat(name string) (Stat, Fact) {
	if kept, ok := n.kept(); ok {
		s, ok := kept["/"+name]
		if _, err := n.fs.Stat(name); !ok && err == nil {
			return Stat{}, Fact{Path: "/" + name, How: "stat", Status: Broken, Err: "the copy does not say who owned it"}
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
		return Stat{}, Fact{Path: "/" + name, How: "stat", Status: Broken, Err: "this is a copy, and does not say who owned it"}
	}
	s := Stat{Mode: fmt.Sprintf("%o", sys.Mode), UID: sys.Uid, GID: sys.Gid}
	return s, s.fact(name)
}

func (s *Stat) fact(name string) Fact {
	return Fact{Path: "/" + name, Value: fmt.Sprintf("mode %s, uid %d, gid %d", s.Mode, s.UID, s.GID), How: "stat"}
}

// kept returns what StatFile says; false where there is none.
func (n *Node) kept() (map[string]Stat, bool) {
	type key struct{}
	kept := Memo(n, key{}, func() map[string]Stat {
		file := n.Read(StatFile)
		if !file.OK() {
			return nil
		}
		all := map[string]Stat{}
		if json.Unmarshal([]byte(file.Value), &all) != nil {
			return map[string]Stat{} // it vouches for nothing
		}
		return all
	})
	return kept, kept != nil
}

// ownersAreReal reports whether files have the owners that they have on the node.
// The root directory of a node is root's; that of a copy that somebody unpacked
// is the person's own.
func (n *Node) ownersAreReal() bool {
	info, err := n.fs.Stat(".")
	if err != nil {
		return false
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == 0
}

// Parents returns a file's path and those of the directories above it, once links
// are followed, without the root.
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

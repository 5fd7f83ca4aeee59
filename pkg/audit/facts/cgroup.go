package facts

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	cgroups = "sys/fs/cgroup"
	// maxCgroups is how deep cgroups are looked into: the kubelet's are five.
	maxCgroups = 32
	// noLimit is where limits of memory in cgroup v1 begin to be none: it prints the
	// largest number of pages that it can count (mm/page_counter.c).
	noLimit = 1 << 62
)

// MemoryBound returns what bounds the memory of a process by the text of its
// proc/<pid>/cgroup: the file of the nearest cgroup that has a limit, in bytes. It
// is false with the files that were looked at where none has one. The error says
// why the cgroup is not to be had.
func (n *Node) MemoryBound(cgroup string) (bound Fact, ok bool, seen []Fact, err error) {
	dir, file, err := memoryCgroup(cgroup)
	if err != nil {
		return Fact{}, false, nil, err
	}
	top := cgroups
	if file != memoryMax {
		top = path.Join(cgroups, "memory")
	}
	at := path.Join(top, dir)
	if f := n.Exists(at); !f.OK() {
		return Fact{}, false, []Fact{f}, fmt.Errorf("the cgroup %s is not to be had", dir)
	}
	for ; at != top && len(seen) < maxCgroups; at = path.Dir(at) {
		f := n.Read(path.Join(at, file))
		if !f.Known() {
			return Fact{}, false, []Fact{f}, fmt.Errorf("the limit of cgroup %s is not to be had", dir)
		}
		seen = append(seen, f)
		if isBound(f) {
			return f, true, seen, nil
		}
	}
	return Fact{}, false, seen, nil
}

const memoryMax = "memory.max"

// memoryCgroup returns the cgroup that counts the memory, and the name of its
// limit's file: by cgroups(7) the one of controller memory, else the unified one's.
func memoryCgroup(text string) (dir, file string, err error) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			dir, file = parts[2], "memory.limit_in_bytes"
		case parts[0] == "0" && file == "":
			dir, file = parts[2], memoryMax
		}
	}
	switch {
	case file == "":
		return "", "", errors.New("proc does not say which cgroup it is in")
	case !path.IsAbs(dir) || slices.Contains(strings.Split(dir, "/"), ".."):
		// What lies above the reader's own root is shown by ".." (cgroup_namespaces(7)).
		return "", "", errors.New("the audit runs in a cgroup namespace of its own, and does not see the cgroup")
	}
	return dir, file, nil
}

func isBound(f Fact) bool {
	limit, err := strconv.ParseUint(f.Value, 10, 64)
	return f.OK() && err == nil && limit < noLimit
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// overhead is where Kata puts the VMMs of sandboxes, each in a group of the sandbox's id, unless it is told to keep them in the
// pod's group (sandbox_cgroup_only). The pod's limits, which are for its containers here, do not hold there.
const overhead = "/sys/fs/cgroup/kata_overhead"

// cgroup is the group of a sandbox's VMM.
func (v vm) cgroup() string { return filepath.Join(overhead, filepath.Base(v.dir)) }

// enterCgroup puts this process, and those that it starts from now on, into the group.
func (v vm) enterCgroup() error {
	if err := os.MkdirAll(v.cgroup(), 0o755); err != nil {
		return fmt.Errorf("make the VMM's cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(v.cgroup(), "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("enter the VMM's cgroup: %w", err)
	}
	return nil
}

// remove removes the VM's directory, and its group unless a VMM is still ending in there: an empty group does no harm.
func (v vm) remove() error {
	_ = os.Remove(v.cgroup())
	return os.RemoveAll(v.dir)
}

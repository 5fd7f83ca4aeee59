package vfio

import (
	"context"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Limits of what is read of one process.
const (
	maxMaps      = 32 << 20
	maxArguments = 64 << 10
)

// errLongMap says that a process has more mappings than anybody looks through.
var errLongMap = errors.New("its memory map is too long")

// errSlow says that a process did not let its memory be read.
var errSlow = errors.New("the kernel does not let go of its memory map")

// mapped returns the functions whose resource files a process has mapped.
func (s *survey) mapped(ctx context.Context, proc string) ([]pci.Address, error) {
	text, err := s.readMemory(ctx, proc+"/maps", maxMaps)
	if err != nil {
		return nil, err
	}
	if len(text) == maxMaps {
		return nil, errLongMap
	}
	var mapped []pci.Address
	for line := range strings.Lines(text) {
		if m, ok := parseMapping(line); ok && s.isResource(&m) {
			mapped = append(mapped, m.function)
		}
	}
	slices.SortFunc(mapped, pci.Address.Compare)
	return slices.Compact(mapped), nil
}

// mapping is a mapping of a function's resource file.
type mapping struct {
	function pci.Address
	file     string // resource0, resource2_wc
	inode    uint64
}

// parseMapping reads a line of proc/<pid>/maps; false for one that is of no
// resource file of a PCI function (proc_pid_maps(5)).
func parseMapping(line string) (mapping, bool) {
	if !strings.Contains(line, "/resource") {
		return mapping{}, false
	}
	const inode, name = 4, 5
	fields := strings.Fields(line)
	if len(fields) <= name {
		return mapping{}, false
	}
	m := mapping{file: path.Base(fields[name])}
	var err error
	if m.function, err = pci.ParseAddress(path.Base(path.Dir(fields[name]))); err != nil {
		return mapping{}, false
	}
	m.inode, err = strconv.ParseUint(fields[inode], 10, 64)
	return m, err == nil && strings.HasPrefix(m.file, "resource")
}

// isResource reports whether the mapped file is the kernel's and not one that
// somebody called so: all mounts of sysfs have the same inode numbers.
func (s *survey) isResource(m *mapping) bool {
	if !s.live {
		return true
	}
	info, err := s.fs.Stat(path.Join(sysfs.FunctionPath(m.function), m.file))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Ino == m.inode
}

// readMemory reads a file of proc for which the kernel takes the lock of a
// process' memory map, or reads that memory.
func (s *survey) readMemory(ctx context.Context, name string, limit int64) (string, error) {
	return s.aside(ctx, func() ([]byte, error) { return s.fs.ReadAtMost(name, limit) })
}

// aside reads what may take as long as a process likes, and gives it up when
// patience ends.
func (s *survey) aside(ctx context.Context, read func() ([]byte, error)) (string, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := read()
		done <- result{data, err}
	}()
	start := time.Now()
	defer func() { s.patience -= max(0, time.Since(start)-atOnce) }()
	timer := time.NewTimer(min(max(s.patience, 0), maxWait) + atOnce)
	defer timer.Stop()
	select {
	case r := <-done:
		return string(r.data), r.err
	case <-ctx.Done():
		return "", ctx.Err()
	case <-timer.C:
		return "", errSlow
	}
}

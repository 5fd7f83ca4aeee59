package sysfs

import (
	"io/fs"
	"syscall"
	"time"
)

// statInfo describes an open file. That of an [os.File] takes more system calls.
type statInfo struct {
	name string
	stat syscall.Stat_t
}

// Name implements [fs.FileInfo].
func (i *statInfo) Name() string { return i.name }

// Size implements [fs.FileInfo].
func (i *statInfo) Size() int64 { return i.stat.Size }

// Mode implements [fs.FileInfo].
func (i *statInfo) Mode() fs.FileMode {
	mode := fs.FileMode(i.stat.Mode) & fs.ModePerm
	for bit, is := range map[uint32]fs.FileMode{syscall.S_ISUID: fs.ModeSetuid, syscall.S_ISGID: fs.ModeSetgid, syscall.S_ISVTX: fs.ModeSticky} {
		if i.stat.Mode&bit != 0 {
			mode |= is
		}
	}
	return mode | map[uint32]fs.FileMode{
		syscall.S_IFDIR: fs.ModeDir, syscall.S_IFLNK: fs.ModeSymlink, syscall.S_IFIFO: fs.ModeNamedPipe, syscall.S_IFSOCK: fs.ModeSocket,
		syscall.S_IFBLK: fs.ModeDevice, syscall.S_IFCHR: fs.ModeDevice | fs.ModeCharDevice,
	}[i.stat.Mode&syscall.S_IFMT]
}

// ModTime implements [fs.FileInfo].
func (i *statInfo) ModTime() time.Time { return time.Unix(i.stat.Mtim.Unix()) }

// IsDir implements [fs.FileInfo].
func (i *statInfo) IsDir() bool { return i.Mode().IsDir() }

// Sys implements [fs.FileInfo].
func (i *statInfo) Sys() any { return &i.stat }

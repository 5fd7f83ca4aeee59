package vfio

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// isPathOnly reports whether an open file of a process only names a place in the file
// system (O_PATH of open(2)). The device's driver does not know of such a file, which
// holds nothing: [sysfs.FS.Stat] has one for a moment, and one part of a program would
// take another for a holder. What fdinfo does not say (proc_pid_fdinfo(5)) is a file
// that holds.
func isPathOnly(fs *sysfs.FS, proc, fd string) bool {
	text, err := fs.ReadString(proc + "/fdinfo/" + fd)
	if err != nil {
		return false
	}
	for line := range strings.Lines(text) {
		octal, ok := strings.CutPrefix(line, "flags:")
		if !ok {
			continue
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(octal), 8, 64)
		return err == nil && flags&unix.O_PATH != 0
	}
	return false
}

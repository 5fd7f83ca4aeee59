package inventory

import (
	"errors"
	"io/fs"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// readInit reads a file below proc that is different for each process, as the
// node's first process sees it: in a container with the host's PID namespace,
// and with the host's proc below the root, that is the host's view. Where it is
// not to be seen (a captured tree, no privilege) it is that of the reader.
// Empty when there is neither.
func readInit(fsys *sysfs.FS, file string) (string, error) {
	text, err := fsys.ReadString("proc/1/" + file)
	if err == nil {
		return text, nil
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return "", err
	}
	return readOptional(fsys, "proc/self/"+file)
}

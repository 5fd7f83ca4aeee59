// Package sanitizer wipes the memory of a device and measures its firmware, inside the VM that has the device. It is the
// kernel's edge of the sanitizing stage: package sanitize has the document that it fills, and what the plugin concludes.
//
// [Memory] is for devices whose memory a guest may map by their BARs, [NVMe] for NVMe controllers. What they can't do or
// check is the verdict Unknown with a reason, not an error. They give up at a deadline even if the device does not answer
// any more: an access to such a device never returns, and no signal ends it.
package sanitizer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// Options are what all sanitizers have in common.
type Options struct {
	// Root is the directory of the VM's sys and dev, "/" in the VM.
	Root string
	// Device is the function to sanitize. If it is nil, the VM must have only one that can be meant.
	Device *pci.Address
	// Timeout is how long the sanitizer may take.
	Timeout time.Duration
	Log     *slog.Logger
}

// writeLimit is how long one write to sysfs may take.
const writeLimit = 30 * time.Second

// guest is the kernel of the VM.
type guest struct {
	fs      *sysfs.FS
	control *control.Control
	writer  *control.RootWriter
}

// openGuest opens the kernel whose files are below root.
func openGuest(root string) (*guest, error) {
	fs, err := sysfs.Open(root)
	if err != nil {
		return nil, err
	}
	writer, err := control.NewWriter(root)
	if err != nil {
		return nil, errors.Join(err, fs.Close())
	}
	return &guest{fs: fs, control: control.New(writer, fs, writeLimit), writer: writer}, nil
}

func (g *guest) close() error { return errors.Join(g.fs.Close(), g.writer.Close()) }

// MakeWritable makes the VM's /sys writable for the container: runtimes mount it read-only for containers that are not
// privileged. It needs CAP_SYS_ADMIN, as do the attribute enable and NVMe's admin commands.
func MakeWritable(dir string) error {
	var mount unix.Statfs_t
	if err := unix.Statfs(dir, &mount); err != nil {
		return fmt.Errorf("ask how %s is mounted: %w", dir, err)
	}
	if mount.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", dir, "", flags, ""); err != nil {
		return fmt.Errorf("make %s writable: %w; add the capability SYS_ADMIN to the container", dir, err)
	}
	return nil
}

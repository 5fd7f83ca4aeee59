// Package boot is what the first processes of the lab machine and of its nested VM have in common: mounts, modules,
// reaping, the kernel's command line, the end.
package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/kmod"
)

// ModulesDir holds the modules of an initramfs, named so that they load in the order of their names.
const ModulesDir = "/modules"

// Mount is one file system to mount.
type Mount struct {
	Source, Target, Type string
	Flags                uintptr
	Data                 string
}

// All mounts in order, making the directories it mounts on.
func All(mounts ...Mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.Target, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
		if err := unix.Mount(m.Source, m.Target, m.Type, m.Flags, m.Data); err != nil {
			return fmt.Errorf("mount %s (%s) on %s: %w", m.Source, m.Type, m.Target, err)
		}
	}
	return nil
}

// Basics are the mounts that everything else needs.
func Basics() []Mount {
	return []Mount{
		{Source: "proc", Target: "/proc", Type: "proc"},
		{Source: "sysfs", Target: "/sys", Type: "sysfs"},
		{Source: "dev", Target: "/dev", Type: "devtmpfs"},
	}
}

// LoadModules loads all that ModulesDir has.
func LoadModules() error {
	files, err := filepath.Glob(ModulesDir + "/*.ko")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		errs = append(errs, kmod.LoadFile(file))
	}
	return errors.Join(errs...)
}

// Parameter is the value of "name=value" on the kernel's command line.
func Parameter(name string) (string, bool, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", false, fmt.Errorf("read the kernel's command line: %w", err)
	}
	for word := range strings.FieldsSeq(string(line)) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value, true, nil
		}
	}
	return "", false, nil
}

// Await waits until a file is there: a device that its driver has yet to find.
func Await(path string, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		_, err := os.Stat(path)
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(end) {
			return err
		}
	}
}

// Reap collects ended processes until the process pid ends. A first process must: all orphans are its children.
func Reap(pid int) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		if ended == pid || errors.Is(err, unix.ECHILD) {
			return
		}
	}
}

// PowerOff ends the machine now; what is not on disk is lost. It returns only if the kernel refuses.
func PowerOff() error {
	return fmt.Errorf("power off: %w", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

// Restart restarts the machine, which ends QEMU: for a first process that has nothing left to do.
func Restart() error {
	return fmt.Errorf("restart: %w", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
)

const (
	newRoot    = "/new"
	deviceWait = 30 * time.Second
)

// inInitramfs makes the root and goes on there. It does not return unless something is wrong.
func inInitramfs() error {
	if err := boot.All(boot.Basics()...); err != nil {
		return err
	}
	if err := boot.LoadModules(); err != nil {
		return err
	}
	if err := stackRoot(); err != nil {
		return err
	}
	if err := carryBinaries(); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Mount(dir, newRoot+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := switchRoot(); err != nil {
		return fmt.Errorf("switch to the root: %w", err)
	}
	return unix.Exec(self, []string{self, stageRoot}, []string{"PATH=" + searchPath, "HOME=/root"})
}

// stackRoot mounts the image's layers below a tmpfs, the state disk on /var/lib, and the host's folder on /host.
func stackRoot() error {
	variant, ok, err := boot.Parameter("lab.vfio")
	if err != nil || !ok {
		return errors.Join(err, errors.New("no lab.vfio= on the kernel's command line"))
	}
	disk, err := diskBySerial("root")
	if err != nil {
		return err
	}
	state, err := diskBySerial("state")
	if err != nil {
		return err
	}
	layers := fmt.Sprintf("lowerdir=/lower/%s:/lower/base,upperdir=/rw/upper,workdir=/rw/work", variant)
	if err := boot.All(
		boot.Mount{Source: disk, Target: "/lower", Type: "ext4", Flags: unix.MS_RDONLY},
		boot.Mount{Source: "rw", Target: "/rw", Type: "tmpfs"},
	); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll("/rw/upper", 0o755), os.MkdirAll("/rw/work", 0o755)); err != nil {
		return err
	}
	return boot.All(
		boot.Mount{Source: "root", Target: newRoot, Type: "overlay", Data: layers},
		boot.Mount{Source: state, Target: newRoot + "/var/lib", Type: "ext4", Data: "noinit_itable"},
		boot.Mount{Source: "host", Target: newRoot + "/host", Type: "9p", Data: "trans=virtio,version=9p2000.L,msize=524288,cache=mmap"},
	)
}

// diskBySerial finds a virtio disk by the serial that QEMU gave it: the letters depend on the order of probing.
func diskBySerial(serial string) (string, error) {
	for end := time.Now().Add(deviceWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		files, err := filepath.Glob("/sys/block/vd*/serial")
		if err != nil {
			return "", err
		}
		for _, file := range files {
			if got, err := os.ReadFile(file); err == nil && string(got) == serial {
				return "/dev/" + filepath.Base(filepath.Dir(file)), nil
			}
		}
	}
	return "", fmt.Errorf("no disk with serial %q after %s", serial, deviceWait)
}

// carryBinaries copies the lab's programs from the initramfs, which is out of reach later.
func carryBinaries() error {
	dir := newRoot + filepath.Dir(self)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{"/init": "machine", "/vm": "vm"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func switchRoot() error {
	return errors.Join(
		unix.Chdir(newRoot),
		unix.Mount(".", "/", "", unix.MS_MOVE, ""),
		unix.Chroot("."),
		unix.Chdir("/"),
	)
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a keeper may take: to boot its VM, to end when it is asked to, and to end when it is killed. It
// kills its VM at once, as Kata does, but the kernel has all of the VM's memory to unpin first.
type patience struct{ boot, asked, killed time.Duration }

// Files in a VM's directory.
const (
	devicesFile   = "devices.json"
	endpointsFile = "endpoints.json"
	reportFile    = "report.json"
	pidFile       = "keeper.pid"
	logFile       = "keeper.log"
)

// vm is a sandbox's VM, by its directory.
type vm struct {
	dir      string
	patience patience
}

// device is a VFIO node of the host that a VM has.
type device struct {
	Path  string `json:"path"`
	Major int64  `json:"major"`
	Minor int64  `json:"minor"`
}

func (v vm) file(name string) string { return filepath.Join(v.dir, name) }

// make makes the directory of a VM with its devices. One that is there already is an error, and one that can't be
// finished is removed.
func (v vm) make(devices []device, endpoints []taken) error {
	if err := os.MkdirAll(filepath.Dir(v.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(v.dir, 0o755); err != nil {
		return err
	}
	for name, content := range map[string]any{devicesFile: devices, endpointsFile: endpoints} {
		text, err := json.Marshal(content)
		if err == nil {
			err = os.WriteFile(v.file(name), text, 0o644)
		}
		if err != nil {
			return errors.Join(err, os.RemoveAll(v.dir))
		}
	}
	return nil
}

// devices are what the VM was given.
func (v vm) devices() ([]device, error) { return read[device](v.file(devicesFile)) }

// endpoints are the physical endpoints among them.
func (v vm) endpoints() ([]taken, error) { return read[taken](v.file(endpointsFile)) }

func read[T any](path string) ([]T, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []T
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return list, nil
}

// stop ends the VM and removes its directory. A VM that is not there is ended.
func (v vm) stop() error {
	text, err := os.ReadFile(v.file(pidFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return v.remove()
	case err != nil:
		return fmt.Errorf("end the VM: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("end the VM: %s: %w", v.file(pidFile), err)
	}
	if err := v.patience.end(pid); err != nil {
		return fmt.Errorf("end the VM's keeper, process %d: %w", pid, err)
	}
	return v.remove()
}

// end ends a process and waits for its end, whoever's child it is.
func (p patience) end(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, attempt := range []struct {
		signal unix.Signal
		limit  time.Duration
	}{{unix.SIGTERM, p.asked}, {unix.SIGKILL, p.killed}} {
		if err := unix.PidfdSendSignal(fd, attempt.signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		if ended, err := awaitEnd(fd, attempt.limit); ended || err != nil {
			return err
		}
	}
	return fmt.Errorf("it does not end within %s", p.asked+p.killed)
}

// awaitEnd waits until the process of a pidfd has ended: then it is readable.
func awaitEnd(fd int, limit time.Duration) (bool, error) {
	for deadline := time.Now().Add(limit); ; {
		left := max(0, time.Until(deadline))
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return ready > 0, err
		}
	}
}

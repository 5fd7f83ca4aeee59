package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/guest/boot"
)

const searchPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// inRoot sets the machine up, starts the agent and reaps until the agent ends.
func inRoot() error {
	if err := boot.All(rootMounts()...); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("lab")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := errors.Join(loadDrivers(), network()); err != nil {
		return err
	}
	cmd := exec.Command(self, stageAgent) //nolint:noctx // lives as long as the machine
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	boot.Reap(cmd.Process.Pid)
	return errors.New("the agent ended")
}

func rootMounts() []boot.Mount {
	return []boot.Mount{
		{Source: "devpts", Target: "/dev/pts", Type: "devpts"},
		{Source: "shm", Target: "/dev/shm", Type: "tmpfs"},
		{Source: "run", Target: "/run", Type: "tmpfs", Data: "mode=755"},
		{Source: "tmp", Target: "/tmp", Type: "tmpfs"},
		{Source: "cgroup2", Target: "/sys/fs/cgroup", Type: "cgroup2"},
		{Source: "debugfs", Target: "/sys/kernel/debug", Type: "debugfs"},
		{Source: "securityfs", Target: "/sys/kernel/security", Type: "securityfs"},
		{Source: "tracefs", Target: "/sys/kernel/tracing", Type: "tracefs"},
	}
}

// loadDrivers loads the modules of lab.modules=a,b,c: nothing here answers the kernel's uevents as udev would.
func loadDrivers() error {
	list, _, err := boot.Parameter("lab.modules")
	if err != nil || list == "" {
		return err
	}
	return command("modprobe", append([]string{"--all"}, strings.Split(list, ",")...)...)
}

// network gives the interface to the outside (the one with virtio's driver) the address that QEMU expects.
func network() error {
	if err := command("modprobe", "virtio_net"); err != nil {
		return err
	}
	name, err := outside()
	if err != nil {
		return err
	}
	return errors.Join(
		command("ip", "link", "set", "lo", "up"),
		command("ip", "link", "set", name, "up"),
		command("ip", "address", "add", "10.0.2.15/24", "dev", name),
		command("ip", "route", "add", "default", "via", "10.0.2.2"),
		os.WriteFile("/etc/resolv.conf", []byte("nameserver 10.0.2.3\n"), 0o644),
		os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost lab\n"), 0o644),
	)
}

func outside() (string, error) {
	links, err := filepath.Glob("/sys/class/net/*/device/driver")
	if err != nil {
		return "", err
	}
	for _, link := range links {
		if driver, err := os.Readlink(link); err == nil && filepath.Base(driver) == "virtio_net" {
			return filepath.Base(filepath.Dir(filepath.Dir(link))), nil
		}
	}
	return "", errors.New("no virtio network interface")
}

// command runs a program of the root and quotes it when it fails.
func command(name string, args ...string) error {
	cmd := exec.Command(name, args...) //nolint:noctx // the boot has its deadline outside
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, strings.TrimSpace(string(out)))
	}
	return nil
}

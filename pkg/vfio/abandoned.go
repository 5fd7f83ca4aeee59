package vfio

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Abandoned is [Abandoned] on the node of p.
func (p *Processes) Abandoned(ctx context.Context, holders []Holder) (map[int]string, error) {
	return Abandoned(ctx, p.fs, holders)
}

// Abandoned returns the sandboxes of those holders, by PID, that are VMMs without a shim.
// Deleting the pod does not end such a VMM. A shim is known by its sandbox's ID among its
// arguments, and so is the runtime's clean-up of the sandbox while it runs. A holder
// whose command line names no sandbox is left out.
func Abandoned(ctx context.Context, fs *sysfs.FS, holders []Holder) (map[int]string, error) {
	alone := map[int]string{}
	for _, h := range holders {
		args, err := argumentsOf(fs, h.PID)
		if err != nil {
			return nil, fmt.Errorf("find the sandbox of process %d: %w", h.PID, err)
		}
		if sandbox := sandboxOf(args); sandbox != "" {
			alone[h.PID] = sandbox
		}
	}
	if len(alone) == 0 {
		return nil, nil
	}
	if err := dropServed(ctx, fs, alone); err != nil {
		return nil, fmt.Errorf("find the shims of %d VMMs: %w", len(alone), err)
	}
	return alone, nil
}

// dropServed removes the VMMs whose sandbox some process has among its arguments.
func dropServed(ctx context.Context, fs *sysfs.FS, alone map[int]string) error {
	pids, err := processes(fs)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return err
		}
		args, err := argumentsOf(fs, pid)
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		for vmm, sandbox := range alone {
			if names(args, sandbox) {
				delete(alone, vmm)
			}
		}
	}
	return nil
}

// argumentsOf returns the command and the arguments of a process; none of one that has
// ended.
func argumentsOf(fs *sysfs.FS, pid int) ([]string, error) {
	cmdline, err := fs.ReadString("proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil, seen(err)
	}
	return strings.Split(cmdline, "\x00"), nil
}

// names reports whether a sandbox's ID is among the arguments.
func names(args []string, sandboxID string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return arg == sandboxID || strings.HasSuffix(arg, "="+sandboxID)
	})
}

// vmDir is where Kata keeps the sockets of each VM, in a directory of the sandbox's ID
// (virtcontainers/persist/fs).
const vmDir = "/run/vc/vm/"

// sandboxOf returns the sandbox's ID by the arguments of its VMM, empty for none: both of
// Kata's runtimes name QEMU "sandbox-<id>"; the Go runtime's other VMMs have sockets in vmDir.
func sandboxOf(args []string) string {
	if i := slices.Index(args, "-name"); i >= 0 && i+1 < len(args) {
		if name, ok := strings.CutPrefix(args[i+1], "sandbox-"); ok {
			id, _, _ := strings.Cut(name, ",")
			return id
		}
	}
	for _, arg := range args {
		if _, below, ok := strings.Cut(arg, vmDir); ok {
			id, _, _ := strings.Cut(below, "/")
			return id
		}
	}
	return ""
}

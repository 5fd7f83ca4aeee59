// Command scanonce scans and publishes one node, as the plugin does when it starts, and prints the greatest resident memory that it
// needed. Its argument is the node's root directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/bench/largenode"
)

// garbagePercent is the plugin's.
const garbagePercent = 50

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scanonce:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("want one argument, the root of a node")
	}
	fs, err := sysfs.Open(args[0])
	if err != nil {
		return err
	}
	defer fs.Close()
	debug.SetGCPercent(garbagePercent)
	snap, err := inventory.Scan(ctx, fs)
	if err != nil {
		return err
	}
	if _, err := largenode.Publish(snap); err != nil {
		return err
	}
	return printPeak()
}

// printPeak prints the line of proc_pid_status(5) with the greatest resident memory, in KiB. It does not use wait4(2), whose
// value for a child is at least that of its parent.
func printPeak() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM:") {
			fmt.Print(line)
		}
	}
	return nil
}

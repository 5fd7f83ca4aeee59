// Command kata-vfio-plugin is the node's side of kata-vfio: the DRA plugin
// that prepares claims for the kubelet, and the same by hand.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

// run runs the command line and returns the exit code.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand(os.Stdout, os.Stderr).ExecuteContext(ctx); err != nil {
		return fail(os.Stderr, err)
	}
	return 0
}

// Command kata-vfio-guestnet configures the interfaces of a pod's VFs inside
// the pod's VM, as the claims say. It runs as an init container with the
// capability NET_ADMIN; package guestnet says how it goes about it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kata-vfio-guestnet:", err)
		os.Exit(exitCode(err))
	}
}

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := newCommand(ctx, stdout, stderr)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

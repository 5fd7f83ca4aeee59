// Command kata-vfio-guestnet configures the interfaces of a pod's VFs inside
// the pod's VM, as the claims say. It runs as an init container with the
// capability NET_ADMIN; package guestnet says how it goes about it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/command"
)

func main() {
	command.Main(func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, os.Stderr) }, fail)
}

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := newCommand(ctx, stdout, stderr)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// fail says on stderr what went wrong and returns the exit code.
func fail(stderr io.Writer, err error) int {
	fmt.Fprintln(stderr, "kata-vfio-guestnet:", err)
	return exitCode(err)
}

// Command kata-vfio-guestnet configures the interfaces of a pod's VFs inside
// the pod's VM according to the claims. It runs as an init container with the
// capability NET_ADMIN; package guestnet describes its steps.
package main

import (
	"context"
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func main() { command.Main(run, command.Fail("kata-vfio-guestnet", exitCode)) }

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return command.Tree(newCommand)(ctx, args, stdout, stderr)
}

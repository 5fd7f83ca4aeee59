// Command kata-vfio-bootstrap configures a node for kata-vfio, verifies it, and
// reverts it. Package bootstrap describes its work.
package main

import (
	"context"
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func main() { command.Main(run, fail) }

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return command.Tree(newCommand)(ctx, args, stdout, stderr)
}

// Command kata-vfio-bootstrap makes a node fit for kata-vfio, verifies that it stays
// so, and takes back what it did. Package bootstrap says how it goes about it.
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

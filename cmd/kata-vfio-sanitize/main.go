// Command kata-vfio-sanitize wipes a device and measures its firmware inside the
// VM that has it, between two tenants. Package sanitizer says how it goes about
// it, and package sanitize what its result means.
package main

import (
	"context"
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func main() { command.Main(run, command.Fail("kata-vfio-sanitize", exitCode)) }

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return command.Tree(newCommand)(ctx, args, stdout, stderr)
}

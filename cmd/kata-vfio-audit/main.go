// Command kata-vfio-audit shows a node's PCI functions and judges how well
// each can be kept apart from the others. It reads only: it links no code that
// can write to the kernel.
package main

import (
	"context"
	"errors"
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func main() { command.Main(run, command.Fail("kata-vfio-audit", exitCode)) }

// run executes the command line args.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return command.Tree(newCommand)(ctx, args, stdout, stderr)
}

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	if verdict, ok := errors.AsType[*verdictError](err); ok {
		return verdict.code
	}
	return command.ExitCode(err)
}
